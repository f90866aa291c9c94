"""How the module's answers print."""

from typing import Any

__all__ = ["OpenCLInfo"]


class OpenCLInfo(dict[str, Any]):
    """Result of `get_opencl_info`: a dict that prints as a table."""

    def __str__(self) -> str:
        width = max(map(len, self))
        lines = [
            f"{key:<{width}}  {_text(value)}" for key, value in self.items() if key != "platforms"
        ]
        for platform in self["platforms"]:
            lines.append(f"{platform['index']}: {platform['name']}, {platform['version']}")
            lines += [f"  {_device(device)}" for device in platform["devices"]]
        return "\n".join(lines)


def _text(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _device(device: dict[str, Any]) -> str:
    float64 = "float64" if device["has_float64"] else "no float64"
    memory = f"{device['max_memory'] / 2**30:.1f} GiB"
    return (
        f"{device['index']}: {device['name']} ({device['kind']}, {device['compute_units']} units, "
        f"{memory}, {float64})"
    )
