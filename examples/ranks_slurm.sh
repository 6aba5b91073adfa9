#!/usr/bin/env bash
# Which rank is different? Each task of a Slurm array summarizes a part of the recordings, and one task compares them.
#
#   job=$(sbatch --parsable --array=0-15 examples/ranks_slurm.sh summarize SNAPSHOTS SUMMARIES)
#   sbatch --dependency=afterany:"$job" examples/ranks_slurm.sh join SUMMARIES ranks.svg
#
# SNAPSHOTS is a folder with a recording of each rank, named after it (rank17.pickle, rank17.pickle.gz...), that all nodes
# can read. SUMMARIES is a folder that all nodes can write to: each task writes a file there, a few kilobytes per rank.
#SBATCH --job-name=memviz-ranks
#SBATCH --cpus-per-task=4
#SBATCH --time=00:10:00
set -euo pipefail

usage() {
    sed -n 's/^#   //p' "$0" >&2
    exit 2
}

[ $# -eq 3 ] || usage

case $1 in
summarize)
    snapshots=$2 summaries=$3
    task=${SLURM_ARRAY_TASK_ID:-0} tasks=${SLURM_ARRAY_TASK_COUNT:-1}
    mkdir -p -- "$summaries"
    shopt -s nullglob
    files=("$snapshots"/*.pickle "$snapshots"/*.pickle.gz "$snapshots"/*.pickle.zst)
    mine=()
    for ((index = task; index < ${#files[@]}; index += tasks)); do
        mine+=("${files[index]}")
    done
    # There may be more tasks than files.
    [ ${#mine[@]} -gt 0 ] || exit 0
    # A recording that cannot be read is also a line of the summary; memviz then exits with 2.
    memviz ranks --format json --threads "${SLURM_CPUS_PER_TASK:-1}" --output="$summaries/task$task.jsonl" --force \
        -- "${mine[@]}"
    ;;
join)
    summaries=$2 picture=$3
    memviz ranks --output="$picture" --force -- "$summaries"
    memviz ranks -- "$summaries"
    ;;
*)
    usage
    ;;
esac
