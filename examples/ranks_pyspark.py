"""Which of the ranks is different? Spark pipes each recording through memviz where it lies; the driver joins.

    spark-submit examples/ranks_pyspark.py 'hdfs:///runs/42/rank*.pickle.gz' --output ranks.svg

memviz has to be on the PATH of the executors and of the driver. Recordings travel to an executor, never to the driver:
what comes back are a few kilobytes per rank.
"""

import argparse
import subprocess
import sys

from pyspark.sql import SparkSession


def summarize(recording):
    """The lines of JSON that memviz writes about one recording."""
    path, content = recording
    # The name tells the rank. One thread each: Spark already runs a task per core.
    command = ["memviz", "ranks", "--format", "json", "--threads", "1", "--stdin-name", path, "-"]
    run = subprocess.run(command, input=content, stdout=subprocess.PIPE, check=False)
    # A recording that cannot be read makes the exit code 2 and is a line of its own, which the join reports.
    if run.returncode not in (0, 2):
        raise RuntimeError(f"memviz ended with {run.returncode} on {path}")
    return run.stdout.decode().splitlines()


def join(lines, arguments):
    """Compares all ranks; gives the exit code of memviz."""
    command = ["memviz", "ranks", "-", *arguments]
    return subprocess.run(command, input="\n".join(lines).encode(), check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", help="folder or glob, as Spark understands it")
    parser.add_argument("--output", help="picture to write, as SVG")
    options = parser.parse_args()

    spark = SparkSession.builder.appName("memviz-ranks").getOrCreate()
    lines = spark.sparkContext.binaryFiles(options.recordings).flatMap(summarize).collect()
    spark.stop()
    if options.output:
        join(lines, ["--quiet", "-o", options.output, "--force"])
    return join(lines, [])


if __name__ == "__main__":
    sys.exit(main())
