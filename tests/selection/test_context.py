"""Call, context and default in one process: who decides, for how long, and what is shown."""

import asyncio
import contextvars
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensor_ops
from tensor_ops import (
    BackendError,
    BackendFallbackWarning,
    BackendUnavailableError,
    ConfigError,
    backends,
    config,
    explain,
    selection,
    state,
    use_backend,
)

NOT_STRINGS = [3, 1.5, True, b"cpp", ["cpp"], {"cpp"}, np, ...]


@pytest.fixture(autouse=True)
def fakes(settings, install):
    """Two fakes that lead the priority, one without a device that does not."""
    install("alpha")
    install("beta", dtypes=("float32", "float16"))
    install("hollow", available=False)
    settings.write(backend_priority=["alpha", "beta", "python"])
    tensor_ops.reload_config()


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

        for function in (coroutine, generator, asynchronous_generator):
            with pytest.raises(TypeError, match=f"{function.__name__}.*inside it"):
                use_backend("beta")(function)

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


class TestForce:
    """Environment and file force; a name on a stronger level is an error, "auto" is not."""

    @pytest.fixture(autouse=True, params=["environment", "file"])
    def force(self, request, settings):
        if request.param == "file":
            settings.write(force_backend="beta", backend_priority=["alpha", "beta", "python"])
            self.lift = "configure_backend --backend=auto"
        else:
            settings.environment(FORCE_BACKEND="beta")
            self.lift = "unset TENSOR_OPS_FORCE_BACKEND"
        tensor_ops.reload_config()

    def refuse(self, attempt):
        with pytest.raises(BackendError) as caught:
            attempt()
        assert type(caught.value) is BackendError
        for text in ("'alpha'", "'beta'", self.lift):
            assert text in str(caught.value)

    def test_another_name_is_an_error_on_every_level(self, who):
        self.refuse(lambda: who(backend="alpha"))
        self.refuse(use_backend("alpha").__enter__)
        self.refuse(lambda: tensor_ops.set_default_backend("alpha"))
        self.refuse(lambda: explain("silu", backend="alpha"))
        assert who() == tensor_ops.get_backend() == tensor_ops.get_default_backend() == "beta"

    def test_the_forced_name_auto_and_none_are_allowed(self, who):
        for name in ("beta", "auto", None):
            assert who(backend=name) == "beta"
            tensor_ops.set_default_backend(name)
            assert who() == "beta"
        for name in ("beta", "auto"):
            with use_backend(name):
                assert who() == tensor_ops.get_backend() == "beta"

    def test_a_context_that_was_open_before(self, settings, who):
        settings.write(backend_priority=["alpha", "beta", "python"])
        settings.environment(FORCE_BACKEND=None)
        tensor_ops.reload_config()
        with use_backend("alpha"):
            assert who() == "alpha"
            settings.environment(FORCE_BACKEND="beta")
            tensor_ops.reload_config()
            with pytest.raises(BackendError, match="use_backend"):
                who()
        assert who() == "beta"

    def test_a_default_that_was_set_before_gives_way_and_explain_says_so(self, settings, who):
        settings.write(backend_priority=["alpha", "beta", "python"])
        settings.environment(FORCE_BACKEND=None)
        tensor_ops.reload_config()
        tensor_ops.set_default_backend("alpha")
        settings.environment(FORCE_BACKEND="beta")
        tensor_ops.reload_config()
        assert who() == "beta"
        found = explain("silu")
        assert found.overridden == ("set_default_backend()",)
        assert "  set_default_backend() asks for another" in str(found)

    def test_variables_that_force_nothing_give_way(self, settings, who):
        settings.environment(BACKEND="alpha", BACKEND_PRIORITY="alpha,python")
        tensor_ops.reload_config()
        assert who() == "beta"

    def test_an_error_about_a_kind_of_device_says_who_named_it(self, who):
        for level, attempt in (
            ("backend= on the call", lambda: who(backend="beta:gpu")),
            (r"use_backend\(\)", use_backend("beta:gpu").__enter__),
            (r"set_default_backend\(\)", lambda: tensor_ops.set_default_backend("beta:gpu")),
        ):
            with pytest.raises(
                BackendUnavailableError, match=rf"'beta:gpu' \(forced by .*, narrowed by {level}\)"
            ):
                attempt()

    def test_what_compares_backends_names_them_all_the_same(self):
        from tensor_ops import benchmark

        results = benchmark.measure_ops(
            benchmark.cases(["silu"], [(1, 2)]), ["python", "alpha"], repeats=1
        )
        assert results[0].ok
        assert "may not run" not in f"{results[1].unsupported} {results[1].failure}"


class TestReloadThatIsDisturbed:
    """A force that `reload_config` brings holds, whatever happens meanwhile."""

    def test_a_missing_backend_stays_forced_until_the_next_reload(self, settings, who):
        tensor_ops.set_default_backend("beta")
        settings.environment(FORCE_BACKEND="hollow")
        with pytest.raises(BackendUnavailableError):
            tensor_ops.reload_config()
        settings.environment(FORCE_BACKEND=None)
        for ask in (who, tensor_ops.get_backend, tensor_ops.get_default_backend):
            with pytest.raises(BackendUnavailableError, match="forced by TENSOR_OPS_FORCE_BACKEND"):
                ask()
        tensor_ops.reload_config()
        assert who() == "beta"  # the default is kept

    def test_an_interrupt_leaves_all_as_it_was(self, settings, who, monkeypatch):
        def interrupt():
            raise KeyboardInterrupt

        settings.environment(FORCE_BACKEND="beta")
        with monkeypatch.context() as patch:
            patch.setattr(backends, "forget_probes", interrupt)
            with pytest.raises(KeyboardInterrupt):
                tensor_ops.reload_config()
        assert who() == who(backend="auto") == explain("silu").backend == "alpha"
        tensor_ops.reload_config()
        assert who() == who(backend="auto") == "beta"

    @pytest.mark.parametrize("outer", ["reload", "default"])
    def test_a_handler_that_reloads_within_a_change_of_settings(
        self, settings, who, monkeypatch, outer
    ):
        """A signal may come after the file was read, and another after it was written anew."""

        def read_and_be_interrupted(*arguments):
            was_read = read(*arguments)
            monkeypatch.setattr(module, function, read)
            settings.write(force_backend="beta")
            tensor_ops.reload_config()
            return was_read

        module, function = (config, "load") if outer == "reload" else (state, "settings")
        read = getattr(module, function)
        change = tensor_ops.reload_config if outer == "reload" else lambda: state.set_default(None)
        monkeypatch.setattr(module, function, read_and_be_interrupted)
        change()
        assert who() == tensor_ops.get_backend() == "beta"

    def test_a_handler_that_reloads_while_a_call_is_planned(self, settings, who, monkeypatch):
        def decide_and_be_interrupted(levels):
            decision = decide(levels)
            monkeypatch.setattr(selection, "decide", decide)
            settings.write(force_backend="beta")
            tensor_ops.reload_config()
            return decision

        decide = selection.decide
        monkeypatch.setattr(selection, "decide", decide_and_be_interrupted)
        assert who(backend="auto") == "alpha"  # it had been decided before
        assert who(backend="auto") == "beta"


class TestPassingOn:
    """Auto and a preference pass an op or dtype on, in order; a name and force do not."""

    def test_auto(self, who):
        assert [who(dtype) for dtype in ("float32", "float16", "float64")] == [
            "alpha",
            "beta",
            "python",
        ]

    def test_a_preference(self, who):
        tensor_ops.set_default_backend("beta")
        assert [who(dtype) for dtype in ("float32", "float16", "float64")] == [
            "beta",
            "beta",
            "python",
        ]

    def test_an_op_that_backends_lack(self):
        x = np.ones((1, 2), np.float32)
        assert isinstance(tensor_ops.rms_norm(x, x[0]), np.ndarray)

    def test_force(self, settings, who):
        settings.environment(FORCE_BACKEND="alpha")
        tensor_ops.reload_config()
        assert who() == "alpha"
        with pytest.raises(BackendError, match=r"force by TENSOR_OPS_FORCE_BACKEND"):
            who("float64")

    def test_nothing_is_warned_of(self, who):
        tensor_ops.set_default_backend("beta")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert who("float64") == "python"


class TestFallback:
    """A preferred backend that is unavailable."""

    @pytest.fixture(autouse=True)
    def prefer_hollow(self, settings):
        settings.write(preferred_backend="hollow", backend_priority=["beta", "python"])
        tensor_ops.reload_config()

    def test_warns_once_at_the_callers_line(self, who):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [who(), who("float64"), tensor_ops.get_backend()] == ["beta", "python", "beta"]
        (warning,) = caught
        assert warning.category is BackendFallbackWarning
        assert warning.filename.endswith("conftest.py")  # who() is there
        for text in ("'hollow'", "backend.json", "no hollow device", "'beta'"):
            assert text in str(warning.message)

    def test_a_warning_that_is_an_error_is_one_every_time_until_it_is_none(self, who):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                with pytest.raises(BackendFallbackWarning):
                    who()
                with pytest.raises(BackendFallbackWarning):
                    tensor_ops.get_backend()
            assert who(backend="beta") == "beta"
        with pytest.warns(BackendFallbackWarning):
            assert who() == "beta"
        assert who() == "beta"

    def test_threads_that_call_first_together_see_one_warning(self, who):
        start = threading.Barrier(8, timeout=30)

        def work():
            start.wait()
            return who()

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with ThreadPoolExecutor(8) as pool:
                ran = [future.result() for future in [pool.submit(work) for _ in range(8)]]
        assert ran == ["beta"] * 8
        assert [warning.category for warning in caught] == [BackendFallbackWarning]

    def test_code_without_a_module_name_is_warned_too(self):
        with pytest.warns(BackendFallbackWarning):
            exec("import tensor_ops; tensor_ops.get_backend()", {})

    def test_explaining_warns_of_nothing(self):
        assert [step.backend for step in explain("silu").steps] == ["hollow", "beta"]

    def test_a_reload_tries_again(self, install, settings, who):
        with pytest.warns(BackendFallbackWarning):
            assert who() == "beta"
        settings.write(preferred_backend="late", backend_priority=["beta", "python"])
        with pytest.raises(ConfigError, match="unknown backend 'late'"):
            tensor_ops.reload_config()
        assert who() == "beta"  # nothing has changed
        install("late")
        assert who() == "late"


class TestInfo:
    def test_get_backend_follows_the_context(self):
        assert tensor_ops.get_backend() == "alpha"
        with use_backend("python"):
            assert tensor_ops.get_backend() == "python"

    def test_get_backend_info_of_the_selection(self, settings):
        assert tensor_ops.get_backend_info() == {
            "backend": "alpha",
            "config": {
                "preferred_backend": "auto",
                "backend_priority": ["alpha", "beta", "python"],
                "force_backend": None,
            },
            "config_file": str(settings.file),
            "available_backends": ["alpha", "beta", "python"],
            "decided_by": str(settings.file),
        }

    def test_get_backend_info_of_the_context(self):
        with use_backend("beta"):
            info = tensor_ops.get_backend_info()
        assert (info["backend"], info["decided_by"]) == ("beta", "use_backend()")

    @pytest.mark.parametrize("name", ["alpha", "hollow", "python", "mps"])
    def test_get_backend_info_has_the_same_keys_for_every_backend(self, name):
        info = tensor_ops.get_backend_info(name)
        assert set(info) == {
            *("name", "display_name", "available", "reason", "version", "device_name"),
            *("device_count", "compute_capability", "compute_units", "max_memory"),
            *("max_shared_memory", "dtypes", "ops"),
        }
        assert info["name"] == name
        assert info["available"] == (name in ("alpha", "python")) == (info["reason"] is None)

    def test_get_backend_info_takes_aliases(self):
        assert tensor_ops.get_backend_info("numpy")["name"] == "python"

    @pytest.mark.parametrize("ask", [tensor_ops.get_backend_info, tensor_ops.is_backend_available])
    @pytest.mark.parametrize(
        ("name", "says"), [("alhpa", "did you mean 'alpha'"), ("auto", "'auto' is not a backend")]
    )
    def test_names_that_are_no_backend(self, ask, name, says):
        with pytest.raises(ConfigError, match=says):
            ask(name)

    def test_is_backend_available(self):
        available = tensor_ops.is_backend_available
        assert available("alpha")
        assert available("numpy")
        assert not available("hollow")
        assert not available("mps")

    def test_get_available_backends_is_in_the_order_of_priority(self, settings):
        settings.write(backend_priority=["python", "hollow", "beta"])
        tensor_ops.reload_config()
        assert tensor_ops.get_available_backends() == ["python", "beta"]

    def test_list_backends(self, capsys):
        names = tensor_ops.list_backends()
        assert names[:3] == ["alpha", "beta", "python"]
        assert {"hollow", "cuda", "opencl", "cpp", "mps", "mkl", "triton"} <= set(names)
        assert len(names) == len(set(names))
        assert capsys.readouterr().out == ""

    def test_list_backends_verbose(self, capsys):
        names = tensor_ops.list_backends(verbose=True)
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == [*names, "numpy", "cpu", "openmp"]
        shown = dict(line.split(maxsplit=1) for line in lines)
        assert shown["alpha"] == "available: Fake alpha on a fake"
        assert shown["hollow"] == "installed, outside the priority list: not imported"
        assert shown["mps"] == f"unavailable: {tensor_ops.get_backend_info('mps')['reason']}"
        assert shown["numpy"] == f"stands for python: {shown['python']}"
        assert shown["openmp"] == f"stands for cpp: {shown['cpp']}"
        assert shown["cpu"] in (shown["numpy"], shown["openmp"])
        assert tensor_ops.list_backends() == names  # looking changes nothing

    def test_what_was_asked_for_before_changes_no_list(self, capsys):
        def lists():
            tensor_ops.list_backends(verbose=True)
            return tensor_ops.get_available_backends(), capsys.readouterr().out

        before = lists()
        tensor_ops.is_backend_available("hollow")
        tensor_ops.is_backend_available("beta")
        with use_backend("beta"):
            pass
        assert lists() == before

    def test_display_name_is_one_name(self):
        assert tensor_ops.get_backend_info("python")["display_name"] == "Python (NumPy)"
        assert tensor_ops.get_backend_info("alpha")["display_name"] == "Fake alpha"


class TestExplain:
    def test_the_whole_walk_as_text(self, settings):
        settings.write(backend_priority=["hollow", "alpha", "beta", "python"])
        tensor_ops.reload_config()
        assert str(explain("silu", np.ones(1))) == (
            "silu for float64 on cpu: python runs\n"
            f"  decided by {settings.file} (auto)\n"
            "  hollow: no hollow device\n"
            "  alpha: no float64 on cpu\n"
            "  beta: no float64 on cpu\n"
            "  python: chosen"
        )

    def test_the_whole_walk_as_a_dict(self, settings):
        assert explain(tensor_ops.silu, x=np.ones(1, np.float16)).as_dict() == {
            "op": "silu",
            "dtype": "float16",
            "device": "cpu",
            "backend": "beta",
            "decided_by": str(settings.file),
            "mode": "auto",
            "steps": [
                {"backend": "alpha", "reason": "no float16 on cpu"},
                {"backend": "beta", "reason": None},
            ],
            "overridden": [],
            "times": None,
        }

    def test_without_arguments_only_the_op_counts(self):
        assert explain("silu").backend == "alpha"
        assert explain("rms_norm", eps=1e-3).backend == "python"
        assert explain("rms_norm").steps[0].reason == "it has no rms_norm"

    def test_who_decided(self):
        tensor_ops.set_default_backend("beta")
        assert explain("silu").decided_by == "set_default_backend()"
        with use_backend("beta"):
            assert explain("silu").decided_by == "use_backend()"
            assert explain("silu", backend="alpha").decided_by == "backend= on the call"
            assert explain("silu", backend="alpha").mode == "named"

    def test_a_strict_choice_that_cannot_run(self):
        explanation = explain("silu", np.ones(1), backend="alpha")
        assert explanation.backend is None
        assert str(explanation).splitlines()[0] == "silu for float64 on cpu: no backend can run"
        assert [step.backend for step in explanation.steps] == ["alpha"]

    def test_an_unavailable_strict_choice(self):
        (step,) = explain("silu", backend="hollow").steps
        assert step.reason == "no hollow device"

    def test_it_says_what_then_happens(self, who):
        for dtype in ("float32", "float16", "float64"):
            assert explain("silu", np.ones(3, dtype)).backend == who(dtype)

    @pytest.mark.parametrize("x", [[1.0], 1.0, np.float32(1), np.ones(3, int), None], ids=repr)
    def test_what_the_op_refuses_is_refused_with_the_same_error(self, x):
        with pytest.raises(TypeError) as of_the_call:
            tensor_ops.silu(x)
        with pytest.raises(TypeError) as of_explain:
            explain("silu", x)
        assert str(of_explain.value) == str(of_the_call.value)

    def test_arguments_that_the_op_does_not_have(self):
        with pytest.raises(TypeError, match="'y'"):
            explain("silu", y=np.ones(1))

    def test_an_unknown_op_lists_the_ops(self):
        with pytest.raises(ValueError, match=r"no op 'slu'.*rms_norm"):
            explain("slu")
