"""Models of Hugging Face's hub by their names: downloads them, and uploads exported ones."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

from t5x_like.interop.hugging_face.files import kept_files, safetensors_files

_OWNED = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# Those of the first models, which have no owner.
_BARE = re.compile(
    r"(albert|(distil)?(bert|roberta|gpt2)|openai-gpt|t5|xlnet)(-(base|small|medium|large|xl|3b|11b)"
    r"[\w.-]*)?"
)
_WEIGHTS = (safetensors_files.SINGLE, safetensors_files.INDEX, safetensors_files.SHARDS)


def is_name(text: object) -> bool:
    """Whether a text names a model of the hub: it is not a path, and looks like `owner/model`.

    Of the models without an owner, such as `gpt2`, the published ones are known.
    """
    if not isinstance(text, str) or Path(text).exists():
        return False
    if _BARE.fullmatch(text):
        return True
    # The name of a run that does not exist looks the same, but for the folder of the other runs.
    return bool(_OWNED.fullmatch(text)) and not Path(text).parent.exists()


def download(name: str) -> Path:
    """The folder of a model's configuration, safetensors and tokenizer; fetches what is missing.

    Raises:
      FileNotFoundError: the model cannot be downloaded, or has no safetensors.
    """
    command = f"`hf download {name} --local-dir DIR`, then name DIR"
    try:
        client = _client()
    except ImportError as error:
        raise FileNotFoundError(
            f"there is no directory {name}, and a model of the hub is downloaded only where "
            f"huggingface_hub is installed (pip install huggingface_hub). Elsewhere: {command}"
        ) from error
    patterns = [*kept_files.SETTINGS, *kept_files.TOKENIZER, *_WEIGHTS]
    try:
        folder = Path(client.snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # the client raises whatever its transport raised
        raise FileNotFoundError(
            f"there is no directory {name}, and the hub's model of that name cannot be downloaded "
            f"({_reason(error)}). Where there is a network: {command}"
        ) from error
    if not any(path for pattern in _WEIGHTS for path in folder.glob(pattern)):
        raise FileNotFoundError(
            f"{name} has no {safetensors_files.SINGLE} at the hub, and other weights, such as "
            "pytorch_model.bin, are never read: unpickling runs whatever code a file holds. Where "
            "you trust it, convert it with transformers: "
            f"AutoModel.from_pretrained({name!r}).save_pretrained(DIR), with the class of the "
            "model's head for AutoModel, then name DIR"
        )
    return folder


def check_upload(name: str) -> None:
    """Checks whatever an upload needs besides the network.

    Raises:
      ValueError: there is no client, nobody is logged in, or this is not a name for a model.
    """
    instead = f"or export without --push, and then `hf upload {name} DIR`"
    try:
        client = _client()
    except ImportError as error:
        raise ValueError(
            f"huggingface_hub uploads, and is not installed: pip install huggingface_hub, {instead}"
        ) from error
    client.utils.validate_repo_id(name)
    if client.get_token() is None:
        raise ValueError(f"nobody is logged in at the hub: `hf auth login`, {instead}")


def upload(folder: Path, name: str, *, private: bool) -> str:
    """Uploads all files of a folder to the model of this name, which is made unless it exists.

    Returns:
      Its address.

    Raises:
      OSError: the upload failed.
      ValueError: it shall be private, but exists and is public.
    """
    client = _client().HfApi()
    try:
        model = client.create_repo(name, private=private or None, exist_ok=True)
        public = private and not client.model_info(model.repo_id).private
        if not public:
            client.upload_folder(repo_id=model.repo_id, folder_path=folder)
    except Exception as error:
        raise OSError(
            f"{folder} was written, but not uploaded to {name} ({_reason(error)}): `hf upload "
            f"{name} {folder}` tries again"
        ) from error
    if public:
        raise ValueError(
            f"{name} exists and is public, so nothing was uploaded: make it private at {model}, or "
            "choose another name"
        )
    return str(model)


def _client() -> ModuleType:
    import huggingface_hub
    import huggingface_hub.errors  # the package does not import its parts
    import huggingface_hub.utils

    return huggingface_hub


def _reason(error: Exception) -> str:
    if isinstance(error, _client().errors.RepositoryNotFoundError):
        return "there is none, or it is closed to you; `hf auth whoami` says who you are"
    return str(error).strip().partition("\n")[0]
