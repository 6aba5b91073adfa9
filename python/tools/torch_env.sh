#!/usr/bin/env bash
# Creates an environment with a real PyTorch that needs no GPU: a stand-in replaces the CUDA runtime, and the allocator
# is PyTorch's own. Tests of the recorder, the pytest plugin and the callbacks run there. Takes several GB in
# target/torch-envs.
#
#     python/tools/torch_env.sh --slim      2.11 without CUDA's libraries, with this project's stand-in: under a minute
#     python/tools/torch_env.sh --cudnn     the same, with cuDNN and cuBLAS (1 GB more), which plan workspaces in rehearsals
#     python/tools/torch_env.sh --recipes   the same, with the libraries of the book's recipes: TRL, DeepSpeed, Ray,
#                                           torchtune
#     python/tools/torch_env.sh             2.11, with the libraries that have callbacks, and torchtune
#     python/tools/torch_env.sh 2.1 2.15    other releases; torchtitan needs 2.15
set -euo pipefail
cd "$(dirname "$0")/../.."

if [[ ${1:-} = --slim || ${1:-} = --cudnn || ${1:-} = --recipes ]]; then
    folder=${CARGO_TARGET_DIR:-target}/torch-envs/2.11 libraries=('nvidia-cuda-nvrtc==13.0.*')
    if [ "$1" = --cudnn ]; then
        # The versions that this release of PyTorch is pinned to.
        folder=${folder%/*}/cudnn
        libraries+=('nvidia-cudnn-cu13==9.19.0.56' 'nvidia-cublas==13.1.*')
    fi
    "${PYTHON:-python3}" -m venv "$folder/venv"
    pip=("$folder/venv/bin/pip" install --quiet --disable-pip-version-check)
    "${pip[@]}" --no-deps 'torch==2.11.*' "${libraries[@]}"
    python3 python/tools/slim_torch.py "$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    # The remaining requirements of torch and its debug server, the libraries with callbacks, and the trackers with hooks.
    "${pip[@]}" torch numpy transformers accelerate lightning ipython pytest pytest-xdist tensorboard mlflow-skinny wandb tabulate
    if [ "$1" = --recipes ]; then
        # The last torchtune, and the torchao that it was built for.
        "${pip[@]}" trl datasets ray torchtune==0.6.1 torchao==0.10.0 setuptools wheel ninja py-cpuinfo
        # Its build needs PyTorch.
        DS_BUILD_OPS=0 "${pip[@]}" --no-build-isolation deepspeed
    fi
    exit
fi

recorder=${MEMVIZ_RECORDER:-../shared/recorder}
if [ ! -f "$recorder/build.py" ]; then
    echo "expected the stand-in for CUDA in $recorder, found none; MEMVIZ_RECORDER names another folder" >&2
    exit 1
fi

[ $# -gt 0 ] || set -- 2.11
for release in "$@"; do
    folder=target/torch-envs/$release
    python=${PYTHON:-python3}
    # Rehearsed third-party programs need the last three.
    packages=("torch==$release.*" pytest einops einx jaxtyping)
    case $release in
    # The last torchtune, and the torchao that it was built for.
    2.11) packages+=(transformers accelerate lightning numpy torchtune==0.6.1 torchao==0.10.0) ;;
    2.15) packages+=(numpy torchtitan) ;;
    # The NumPy that these were built with.
    2.[1-3]) packages+=("numpy<2") python=${PYTHON:-python3.11} ;;
    *) packages+=(numpy) ;;
    esac
    "$python" -m venv "$folder/venv"
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
    site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    python3 "$recorder/build.py" --site "$site" --out "$folder/lib"
done
