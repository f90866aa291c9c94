"""The file of ``--prompt-cache``: what was computed of a prompt, for commands that come later."""

from pathlib import Path

from tensor_ops.extension import warn_caller
from tensor_ops_decode.completion import Completion
from tensor_ops_decode.generation.model import Model
from tensor_ops_decode.weights import FileFormatError

__all__ = ["PromptCache"]


class PromptCache:
    """Reads the file before the first answer, and writes it after that unless it was of use."""

    def __init__(self, model: Model, path: Path | None) -> None:
        self._model, self._path = model, path
        self._num_loaded = 0

    def load(self) -> None:
        """Read the file, if it is there; one that cannot be used is a warning."""
        if self._path is None or not self._path.exists():
            return
        try:
            self._num_loaded = self._model.load_prompt(self._path)
        except FileFormatError as error:
            warn_caller(f"the prompt is read again, and kept: {error}", RuntimeWarning)

    def save(self, answer: Completion) -> None:
        """Write the prompt of the first answer, unless it began as the file's did."""
        path, self._path = self._path, None
        size, length = self._model.kernel.program.limits.page_size, len(answer.prompt_tokens)
        if path is None or length < size:
            return
        # The last token of a prompt is always computed.
        wanted = min(self._num_loaded, (length - 1) // size * size)
        if not self._num_loaded or answer.shared_tokens < wanted:
            self._model.save_prompt(path, answer.prompt_tokens)
