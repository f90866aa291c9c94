"""Call, context and default in one process: who decides, and for how long."""

import asyncio
import contextvars
import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensor_ops
from tensor_ops import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    use_backend,
)

NOT_STRINGS = [3, 1.5, True, b"cpp", ["cpp"], {"cpp"}, np, ...]


pytestmark = pytest.mark.usefixtures("fakes")


def test_call_goes_before_context_before_default(who):
    assert who() == "alpha"
    tensor_ops.set_default_backend("beta")
    assert who() == "beta"
    with use_backend("python"):
        assert who() == "python"
        assert who(backend="alpha") == "alpha"
        assert who(backend=None) == "python"


def test_auto_on_the_call_goes_past_context_and_default(who):
    tensor_ops.set_default_backend("beta")
    with use_backend("python"):
        assert who(backend="auto") == "alpha"


class TestUseBackend:
    def test_nests_and_restores(self, who):
        with use_backend("beta"):
            with use_backend("python"):
                assert who() == "python"
                with use_backend("auto"):
                    assert who() == "alpha"
                assert who() == "python"
            assert who() == "beta"
        assert who() == "alpha"

    def test_an_exception_passes_and_restores(self, who):
        with pytest.raises(KeyError), use_backend("beta"):
            raise KeyError
        assert who() == "alpha"

    def test_an_unavailable_backend_is_an_error_on_entry_and_changes_nothing(self, who):
        with pytest.raises(BackendUnavailableError, match=r"hollow.*use_backend.*no hollow device"):
            use_backend("hollow").__enter__()
        assert who() == "alpha"

    def test_aliases(self):
        with use_backend("numpy"):
            assert tensor_ops.get_backend() == "python"

    def test_an_unknown_name_gets_the_nearest(self):
        with pytest.raises(ConfigError, match=r"'alhpa'; did you mean 'alpha'\?"):
            use_backend("alhpa").__enter__()

    @pytest.mark.parametrize("name", [None, *NOT_STRINGS], ids=repr)
    def test_a_name_is_a_string(self, name):
        with pytest.raises(TypeError, match="a backend's name must be a string, got"):
            use_backend(name).__enter__()

    def test_one_object_serves_many_blocks(self, who):
        on_beta = use_backend("beta")
        for _ in range(2):
            with on_beta, on_beta:
                assert who() == "beta"
            assert who() == "alpha"

    def test_one_object_serves_threads_and_tasks_at_once(self, who):
        on_beta = use_backend("beta")

        async def task(delay):
            with on_beta:
                await asyncio.sleep(delay)
                inside = who()
            return inside, who()

        async def main():
            return await asyncio.gather(*(task(delay) for delay in (0.02, 0.04, 0)))

        assert asyncio.run(main()) == [("beta", "alpha")] * 3
        both_inside = threading.Barrier(2, timeout=30)

        def work(leaves_first):
            with on_beta:
                both_inside.wait()
                if not leaves_first:
                    both_inside.wait()
            after = who()
            if leaves_first:
                both_inside.wait()
            return after

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(work, (True, False))) == ["alpha", "alpha"]

    def test_decorates_functions_and_methods(self, who):
        class Model:
            @use_backend("beta")
            def run(self, depth):
                """Run."""
                return [who(), *(self.run(depth - 1) if depth else [])]

        assert Model().run(2) == ["beta"] * 3
        assert Model.run.__doc__ == "Run."
        assert who() == "alpha"

    def test_a_decorator_looks_at_the_backend_at_each_call(self, who):
        decorated = use_backend("hollow")(who)
        for _ in range(2):
            with pytest.raises(BackendUnavailableError):
                decorated()

    def test_refuses_to_decorate_what_runs_after_the_call(self):
        async def coroutine():
            pass

        def generator():
            yield

        async def asynchronous_generator():
            yield

        class Coroutines:
            async def __call__(self):
                pass

        for function in (coroutine, generator, asynchronous_generator):
            for decorated in (function, functools.partial(function)):
                with pytest.raises(TypeError, match=f"{function.__name__}.*inside it"):
                    use_backend("beta")(decorated)
        with pytest.raises(TypeError, match=r"Coroutines object.*inside it"):
            use_backend("beta")(Coroutines())

    def test_decorates_what_is_called_like_a_function(self, who):
        class Asking:
            def __call__(self):
                return who()

        for function in (functools.partial(who), Asking()):
            assert use_backend("beta")(function)() == "beta"

    def test_holds_for_its_own_thread(self, who):
        inside, seen = threading.Barrier(2, timeout=30), {}

        def work(name):
            before = who()
            with use_backend(name):
                inside.wait()  # both threads are in their blocks
                seen[name] = (before, who())
                inside.wait()

        # A thread may or may not start with its parent's context, so none is set here.
        threads = [threading.Thread(target=work, args=[name]) for name in ("beta", "python")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == {"beta": ("alpha", "beta"), "python": ("alpha", "python")}
        assert who() == "alpha"

    def test_a_copied_context_takes_it_along(self, who):
        with use_backend("beta"):
            context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(context.run, who).result() == "beta"
        assert context.run(who) == "beta"
        assert who() == "alpha"

    def test_holds_for_its_own_asyncio_task(self, who):
        async def task(name, entered, other_entered):
            with use_backend(name):
                entered.set()
                await other_entered.wait()
                inner = await asyncio.create_task(child())
                return who(), inner, await asyncio.to_thread(who)

        async def child():
            return who()

        async def main():
            a, b = asyncio.Event(), asyncio.Event()
            results = await asyncio.gather(task("beta", a, b), task("python", b, a))
            return results, who()

        results, outside = asyncio.run(main())
        assert results == [("beta",) * 3, ("python",) * 3]
        assert outside == "alpha"

    def test_around_the_steps_of_a_generator(self, who):
        def generator():
            yield who()
            with use_backend("python"):
                mine = who()
            yield mine

        with use_backend("beta"):
            steps = generator()
            assert next(steps) == "beta"
        assert next(steps) == "python"
        assert who() == "alpha"

    def test_a_generator_that_yields_inside_shares_its_choice_until_it_goes_on(self, who):
        def generator():
            with use_backend("beta"):
                yield who()

        steps = generator()
        assert next(steps) == "beta"
        assert who() == "beta"  # as the docstring warns
        steps.close()
        assert who() == "alpha"

    def test_holds_when_settings_change_inside(self, who):
        with use_backend("beta"):
            tensor_ops.set_default_backend("python")
            tensor_ops.reload_config()
            assert who() == "beta"
        assert who() == "python"


class TestDefault:
    def test_none_returns_to_the_configuration(self, who):
        tensor_ops.set_default_backend("python")
        assert tensor_ops.get_default_backend() == "python"
        tensor_ops.set_default_backend(None)
        assert who() == tensor_ops.get_default_backend() == "alpha"

    def test_goes_before_environment_and_file(self, settings, who):
        settings.environment(BACKEND="beta")
        tensor_ops.reload_config()
        assert who() == "beta"
        tensor_ops.set_default_backend("python")
        assert who() == "python"
        tensor_ops.set_default_backend("auto")
        assert who() == "alpha"

    def test_survives_reload(self, who):
        tensor_ops.set_default_backend("beta")
        tensor_ops.reload_config()
        assert who() == "beta"

    def test_an_unavailable_backend_is_an_error_and_the_default_stays(self, who):
        tensor_ops.set_default_backend("beta")
        with pytest.raises(BackendUnavailableError, match="no hollow device") as caught:
            tensor_ops.set_default_backend("hollow")
        assert caught.value.name == "hollow"
        assert who() == tensor_ops.get_default_backend() == "beta"

    @pytest.mark.parametrize("name", ["alhpa", "", "ALPHA", " alpha"])
    def test_an_unknown_name_is_an_error_and_the_default_stays(self, name, who):
        with pytest.raises(ConfigError, match="unknown backend"):
            tensor_ops.set_default_backend(name)
        assert who() == "alpha"

    @pytest.mark.parametrize("name", NOT_STRINGS, ids=repr)
    def test_a_name_is_a_string(self, name, who):
        with pytest.raises(TypeError, match="a backend's name must be a string, got"):
            tensor_ops.set_default_backend(name)
        assert who() == "alpha"

    def test_aliases(self):
        tensor_ops.set_default_backend("numpy")
        assert tensor_ops.get_default_backend() == "python"

    def test_a_context_does_not_change_it(self):
        with use_backend("beta"):
            assert tensor_ops.get_backend() == "beta"
            assert tensor_ops.get_default_backend() == "alpha"

    def test_holds_in_other_threads(self, who):
        tensor_ops.set_default_backend("beta")
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(who).result() == "beta"


class TestCall:
    @pytest.mark.parametrize("name", NOT_STRINGS, ids=repr)
    def test_a_name_is_a_string(self, name, who):
        with pytest.raises(TypeError, match="a backend's name must be a string, got"):
            who(backend=name)

    @pytest.mark.parametrize("name", ["Alpha", " alpha ", "ALPHA"])
    def test_names_are_taken_literally_and_the_nearest_is_given(self, name, who):
        with pytest.raises(ConfigError, match=r"did you mean 'alpha'\?"):
            who(backend=name)

    def test_an_unavailable_backend_is_an_error(self, who):
        for _ in range(2):
            with pytest.raises(BackendUnavailableError, match=r"backend= on the call.*no hollow"):
                who(backend="hollow")

    def test_a_dtype_that_the_named_backend_lacks_is_an_error(self, who):
        with pytest.raises(BackendError, match=r"float64.*named.*alpha: no float64 on cpu"):
            who("float64", backend="alpha")

    def test_an_op_that_the_named_backend_lacks_is_an_error(self):
        x = np.ones((1, 2), np.float32)
        with pytest.raises(BackendError, match=r"rms_norm.*alpha: it has no rms_norm"):
            tensor_ops.rms_norm(x, x[0], backend="alpha")
