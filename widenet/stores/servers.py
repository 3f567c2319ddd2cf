"""The server, or the account, that the environment names for a scheme."""

import os


def endpoint(scheme: str) -> tuple[str, ...]:
    """Return what else than a URI says where its objects are, if anything: an address or an account."""
    variables = os.environ
    if scheme == "s3":
        named = variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL")
    elif scheme == "gs":
        named = variables.get("CLOUD_STORAGE_EMULATOR_ENDPOINT")
    else:
        pairs = (word.partition("=")[::2] for word in connection().split(";"))
        parts = {name.strip().lower(): value for name, value in pairs}  # as Azure's library reads them
        named = parts.get("blobendpoint") or parts.get("accountname") or account()
    return (named,) if named else ()


def connection() -> str:
    """Return Azure's connection string, which holds secrets; "" if there is none."""
    return os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")


def account() -> str:
    """Return the name of an Azure storage account; "" if there is none."""
    return os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
