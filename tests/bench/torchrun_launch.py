"""torchrun as it is; where the enumeration of its -r and -t options cannot be parsed by this
Python, only that parser is replaced."""
import torch.distributed.elastic.multiprocessing.api as api

try:
    api.Std.from_str("1")
except Exception:  # pylint: disable=broad-except
    api.Std.from_str = classmethod(lambda cls, text: cls(int(text)))

from torch.distributed.run import main  # noqa: E402  pylint: disable=wrong-import-position

if __name__ == "__main__":
    main()
