"""Forces of environment and file, and reloads that something disturbs."""

import pytest

import tensor_ops
from tensor_ops import BackendError, BackendUnavailableError, backends, config, explain, use_backend
from tensor_ops.config import selection, state

pytestmark = pytest.mark.usefixtures("fakes")


class TestForce:
    """Environment and file force; a name on a stronger level is an error, "auto" is not."""

    @pytest.fixture(autouse=True, params=["environment", "file"])
    def force(self, request, settings, fakes):
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
