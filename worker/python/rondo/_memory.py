"""The bytes of torch tensors and NumPy arrays: dtype, shape, address; no pickle, at most one copy.

Neither library is imported: what the program has not loaded it cannot have put into its state.
"""

import ctypes
import math
import sys

from ._plain import refuse

# safetensors' name: bytes of an element, torch's name, NumPy's name.
DTYPES = {
    "BOOL": (1, "bool", "bool"),
    "U8": (1, "uint8", "uint8"),
    "I8": (1, "int8", "int8"),
    "F8_E5M2": (1, "float8_e5m2", None),
    "F8_E4M3": (1, "float8_e4m3fn", None),
    "F8_E8M0": (1, "float8_e8m0fnu", None),
    "F8_E4M3FNUZ": (1, "float8_e4m3fnuz", None),
    "F8_E5M2FNUZ": (1, "float8_e5m2fnuz", None),
    "I16": (2, "int16", "int16"),
    "U16": (2, "uint16", "uint16"),
    "F16": (2, "float16", "float16"),
    "BF16": (2, "bfloat16", None),
    "I32": (4, "int32", "int32"),
    "U32": (4, "uint32", "uint32"),
    "F32": (4, "float32", "float32"),
    "C64": (8, "complex64", "complex64"),
    "F64": (8, "float64", "float64"),
    "I64": (8, "int64", "int64"),
    "U64": (8, "uint64", "uint64"),
}
OF_TORCH = {entry[1]: name for name, entry in DTYPES.items()}
OF_NUMPY = {entry[2]: name for name, entry in DTYPES.items() if entry[2]}


def torch_or_none():
    return sys.modules.get("torch")


def numpy_or_none():
    return sys.modules.get("numpy")


def is_tensor(value):
    torch = torch_or_none()
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def is_array(value):
    numpy = numpy_or_none()
    return numpy is not None and isinstance(value, getattr(numpy, "ndarray", ()))


def is_dtensor(value):
    return all(hasattr(value, name) for name in ("device_mesh", "placements", "to_local"))


def is_leaf(value):
    return is_dtensor(value) or is_tensor(value) or is_array(value)


def dtype_name(dtype, path):
    """The file's name of torch's or NumPy's dtype, or of itself."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    text = str(dtype)
    if text.startswith("torch."):
        found = OF_TORCH.get(text[len("torch."):])
    else:
        numpy = numpy_or_none()
        try:
            found = OF_NUMPY.get(numpy.dtype(dtype).newbyteorder("=").name) if numpy else None
        except TypeError:
            found = None
    return found or refuse(path, f"dtype {text} cannot be saved")


def torch_dtype(name, path):
    torch = torch_or_none()
    return getattr(torch, DTYPES[name][1], None) or refuse(
        path, f"this torch has no dtype for {name}")


class Span:
    """Contiguous memory of one piece. keep: what owns it. finish: brings loaded bytes to where they
    belong; None: they are there."""

    __slots__ = ("address", "bytes", "keep", "finish")

    def __init__(self, address, size, keep, finish=None):
        self.address, self.bytes, self.keep, self.finish = address, size, keep, finish


def plain_tensor(tensor, path):
    """The tensor without autograd, laid out by strides; refused where its bytes are no such."""
    torch = torch_or_none()
    if tensor.layout != torch.strided or getattr(tensor, "is_quantized", False):
        refuse(path, "a sparse or quantized tensor cannot be saved; save its parts")
    return tensor.detach()


def spans(value, resolved, path, loading):
    """The memory of each piece that this rank has of the value, in the placement's order."""
    values, parts, out = [value], resolved.parts, []
    if resolved.several and isinstance(value, (list, tuple)):
        values = [one for one in value if 0 not in one.shape]
    if resolved.several and len(values) != len(parts):
        refuse(path, f"{len(values)} tensors for {len(parts)} parts")
    for at, part in enumerate(parts):
        whole = values[at] if resolved.several else values[0]
        out.append(span(cut(whole, part, path), path, loading))
    return out


def cut(whole, part, path):
    """The piece as a view."""
    if isinstance(part, int):  # so many elements from the beginning
        if whole.ndim != 1 or whole.shape[0] < part:
            refuse(path, f"a flat part of {part} elements in a tensor {list(whole.shape)}")
        return whole[:part]
    if len(part) != whole.ndim or any(end > size for (_, end), size in zip(part, whole.shape)):
        refuse(path, f"a part {part} in a tensor {list(whole.shape)}")
    if all(begin == 0 and end == size for (begin, end), size in zip(part, whole.shape)):
        return whole
    return whole[tuple(slice(begin, end) for begin, end in part)]


def span(view, path, loading):
    return tensor_span(view, path, loading) if is_tensor(view) else array_span(view, path, loading)


def tensor_span(view, path, loading):
    view = plain_tensor(view, path)
    size = view.numel() * view.element_size()
    there = view.device.type == "cpu" and view.is_contiguous() and not lazy(view)
    if there:
        return Span(view.data_ptr(), size, view)
    torch = torch_or_none()
    if loading:
        refuse_overlap(view.shape, view.stride(), path)
        memory = torch.empty(view.shape, dtype=view.dtype)
        return Span(memory.data_ptr(), size, memory, lambda: view.copy_(memory))
    memory = resolved_tensor(view).to("cpu").contiguous()
    return Span(memory.data_ptr(), size, memory)


def lazy(view):
    return any(getattr(view, name, bool)() for name in ("is_conj", "is_neg"))


def resolved_tensor(view):
    """torch keeps a conjugate as a flag over the same bytes."""
    for name in ("resolve_conj", "resolve_neg"):
        view = getattr(view, name)() if hasattr(view, name) else view
    return view


def array_span(view, path, loading):
    numpy = numpy_or_none()
    if isinstance(view, numpy.ma.MaskedArray):
        refuse(path, "a masked array cannot be saved; save its data and its mask")
    native = view.dtype.isnative and view.flags.c_contiguous and view.flags.aligned
    size = math.prod(view.shape) * view.dtype.itemsize
    if loading and not view.flags.writeable:
        refuse(path, "an array that is read-only cannot be loaded into")
    if native:
        return Span(view.ctypes.data, size, view)
    if loading:
        refuse_overlap(view.shape, view.strides, path)
        memory = numpy.empty(view.shape, dtype=view.dtype.newbyteorder("="))
        return Span(memory.ctypes.data, size, memory, lambda: numpy.copyto(view, memory))
    memory = numpy.ascontiguousarray(view, dtype=view.dtype.newbyteorder("=")).reshape(view.shape)
    return Span(memory.ctypes.data, size, memory)


def refuse_overlap(shape, strides, path):
    if 0 in shape:
        return
    reach = 0  # of the dimensions with smaller strides: each next one must step over it
    for stride, size in sorted((abs(stride), size) for stride, size in zip(strides, shape)
                               if size > 1):
        if stride <= reach:
            refuse(path, "an expanded tensor, whose elements share memory, cannot be loaded into")
        reach += stride * (size - 1)


def has_memory(value):
    """Of one address and strides."""
    return (value.numel() > 0 and value.device.type != "meta" and
            value.layout == torch_or_none().strided)


def extent(value):
    """(first address, one past the last) of the memory that a tensor's elements lie in, or None."""
    if is_dtensor(value) or not (is_tensor(value) or is_array(value)):
        return None
    if is_array(value):
        if value.size == 0:
            return None
        low, high = numpy_or_none().lib.array_utils.byte_bounds(value) if hasattr(
            numpy_or_none().lib, "array_utils") else numpy_or_none().byte_bounds(value)
        return low, high
    if not has_memory(value):
        return None
    reach = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))
    return value.data_ptr(), value.data_ptr() + (reach + 1) * value.element_size()


def identity(value):
    """Equal for tensors that are the same elements of the same memory; None: has none."""
    if is_dtensor(value):
        return None
    if is_array(value):
        return (value.ctypes.data, value.shape, value.strides, value.dtype.str) \
            if value.size else None
    if not is_tensor(value) or not has_memory(value):
        return None
    flags = tuple(getattr(value, name, bool)() for name in ("is_conj", "is_neg"))
    return (value.data_ptr(), tuple(value.shape), tuple(value.stride()), str(value.dtype),
            str(value.device), flags)


def copy(to, value, path):
    """Into a tensor of the same form."""
    if tuple(to.shape) != tuple(value.shape) or to.dtype != value.dtype:
        refuse(path, "declared as an alias of a tensor of another form")
    if is_array(to):
        numpy_or_none().copyto(to, value)
    else:
        with torch_or_none().no_grad():
            to.copy_(value)


def copy_bytes(address, size):
    return ctypes.string_at(address, size)
