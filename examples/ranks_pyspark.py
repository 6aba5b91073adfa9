"""Which rank is different? Spark executors summarize each recording with memviz, and the driver compares the summaries.

    spark-submit examples/ranks_pyspark.py 'hdfs:///runs/42/rank*.pickle.gz' --output ranks.svg

memviz must be on the PATH of the executors and of the driver. Recordings are sent only to executors; the driver
receives a few kilobytes per rank.
"""

import argparse
import subprocess
import sys

from pyspark.sql import SparkSession


def summarize(recording):
    """Return the lines of JSON that memviz writes about a recording."""
    path, content = recording
    # memviz takes the rank from the name. One thread is enough: Spark already runs a task per core.
    command = ["memviz", "ranks", "--format", "json", "--threads", "1", f"--stdin-name={path}", "-"]
    run = subprocess.run(command, input=content, stdout=subprocess.PIPE, check=False)
    # If a recording cannot be read, memviz exits with 2 and writes a line about it, which the comparison reports.
    if run.returncode not in (0, 2):
        raise RuntimeError(f"memviz exited with {run.returncode} for {path}")
    return run.stdout.decode().splitlines()


def join(lines, arguments):
    """Compare all ranks, and return the exit code of memviz."""
    command = ["memviz", "ranks", "-", *arguments]
    return subprocess.run(command, input="\n".join(lines).encode(), check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", help="folder or glob, in the syntax of Spark")
    parser.add_argument("--output", help="picture to write, as SVG")
    options = parser.parse_args()

    spark = SparkSession.builder.appName("memviz-ranks").getOrCreate()
    lines = spark.sparkContext.binaryFiles(options.recordings).flatMap(summarize).collect()
    spark.stop()
    if options.output:
        join(lines, ["--quiet", f"--output={options.output}", "--force"])
    return join(lines, [])


if __name__ == "__main__":
    sys.exit(main())
