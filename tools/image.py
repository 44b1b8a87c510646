"""The operator's image without Docker, a registry or a network: made of the Python that runs this and its packages.

    python -m tools.image --output trainmaster.tar

The file can be loaded by `ctr images import`, `docker load` and `podman load`. The same machine makes the same bytes
each time. The `Dockerfile` lays out its image with the same code, of a Python of its own: `--rootfs DIR` stops there.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import trainmaster
from tools.image_archive import Image, Layer, write_archive
from tools.image_rootfs import stage_application, stage_system
from trainmaster.operator.install import NAME, USER

REFERENCE = f"docker.io/library/{NAME}:{trainmaster.__version__}"
"""What a cluster makes of the image name in our manifests."""

EPOCH = 1_704_067_200
"""2024-01-01: when no SOURCE_DATE_EPOCH says otherwise, everything in the image is of that day."""

ENTRYPOINT = f"/usr/local/bin/{NAME}"


def lay_out(root: Path, epoch: int = EPOCH) -> None:
    """The whole image as a directory, every file of the same date."""
    stage_system(root)
    stage_application(root)
    for path in (root, *root.rglob("*")):
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def build(output: Path, reference: str = REFERENCE, epoch: int = EPOCH) -> Image:
    """Writes the archive: Python with its libraries and packages in one layer, our own code in another."""
    with tempfile.TemporaryDirectory(prefix="trainmaster-image-") as place:
        system, application = Path(place) / "system", Path(place) / "application"
        stage_system(system)
        stage_application(application)
        layers = (Layer.of(system, epoch), Layer.of(application, epoch))
    image = Image(reference, layers, (ENTRYPOINT,), f"{USER}:{USER}", epoch, trainmaster.__version__)
    write_archive(image, output)
    return image


def main(arguments: list[str]) -> int:
    verbatim = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="tools.image", description=__doc__, formatter_class=verbatim)
    parser.add_argument("--output", type=Path, default=Path("trainmaster.tar"), help="default: %(default)s")
    parser.add_argument("--reference", default=REFERENCE, help="the image's name; default: %(default)s")
    parser.add_argument("--rootfs", type=Path, help="lay out the image's files in this new directory, and no more")
    given = parser.parse_args(arguments)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH))
    if given.rootfs is not None:
        lay_out(given.rootfs, epoch)
        return 0
    image = build(given.output, given.reference, epoch)
    size = given.output.stat().st_size / 1e6
    sys.stdout.write(f"{given.output}: {image.reference}@sha256:{image.digest}, {size:.0f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
