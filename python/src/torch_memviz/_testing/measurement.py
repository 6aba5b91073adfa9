"""A test that is recorded, and judged by `memviz check`."""

from __future__ import annotations

import gc
import re
import warnings
from pathlib import Path

from .._binary import MemvizError, call, run
from .._recording import release
from .._recording.names import of_earlier_runs
from .._recording.recorder import record
from .limits import Limits


class Measurement:
    """The recording of a test, from its fixtures to its end."""

    def __init__(self, limits: Limits, path: Path, scratch: Path, keep: bool) -> None:
        """Get ready to record.

        Args:
            limits: What the test may use.
            path: Where its recording goes if it is kept.
            scratch: A folder of this process alone: what is judged there was recorded here.
            keep: Whether it is kept in any case.
        """
        self.limits, self.path, self.keep = limits, path, keep
        self.recorder = record(scratch / path.name, report=False)

    def start(self) -> None:
        """Begin with nothing that earlier tests left to the allocator or the garbage collector."""
        for path in [*of_earlier_runs(self.path), self.path.with_suffix(".html")]:
            path.unlink(missing_ok=True)
        gc.collect()
        torch = release.torch()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        self.recorder.start()

    def stop(self, error: BaseException | None = None) -> None:
        """End the recording."""
        self.recorder.stop(error)

    def judge(self, update_baseline: bool) -> str | None:
        """Give what is wrong; None where every limit is kept. What cannot be judged is wrong, too."""
        recording = self.recorder.recording
        if recording is None:
            return "GPU memory is not known: nothing was recorded"
        flags = list(self.limits.flags)
        baseline = self.limits.baseline
        if baseline is not None and update_baseline:
            baseline.parent.mkdir(parents=True, exist_ok=True)
            flags += [f"--baseline={baseline}", "--update-baseline"]
        elif baseline is not None:
            if not baseline.is_file():
                return self._no_baseline(baseline)
            flags += [f"--baseline={baseline}", f"--tolerance={self.limits.tolerance}"]
        done = call(["check", *flags, "--", str(recording)])
        if done.exit_code == 0:
            if update_baseline:
                self._forget_old_baseline()
            return None
        title = "more GPU memory than allowed" if done.exit_code == 1 else "GPU memory is not known"
        said = (done.stdout or done.message()).strip()
        # Summaries of pytest show the first line alone.
        reason = re.search(r"^(?:max|baseline)-.* on device .*$", said, re.MULTILINE)
        return f"{title}{f': {reason.group()}' if reason else ''}\n\n{said}"

    def _no_baseline(self, baseline: Path) -> str:
        old = self.limits.old_baseline
        said = f"GPU memory is not known: there is no baseline {baseline}; --memviz-update-baselines writes it"
        if old is not None and old != baseline and old.is_file():
            said += f"\n\n{old} may be that of another test with this name: tests have a baseline each now"
        return said

    def _forget_old_baseline(self) -> None:
        """Remove the baseline that the new one replaces, which tests of one name in several classes shared."""
        old, baseline = self.limits.old_baseline, self.limits.baseline
        if old is not None and old != baseline and old.is_file():
            old.unlink(missing_ok=True)
            warnings.warn(f"{old} is now {baseline}: tests have a baseline each", UserWarning, stacklevel=1)

    def evidence(self) -> str:
        """Keep the recording, with a report beside it, and say where."""
        lines = []
        for path in self._kept():
            lines.append(f"recording: {path}")
            page = path.with_suffix(".html")
            try:
                run(["report", "--format=html", "--force", "--quiet", f"--output={page}", "--", str(path)])
                lines.append(f"report: {page}")
            except MemvizError as error:
                lines.append(f"no report: {error}")
        return "\n".join(lines)

    def forget(self) -> None:
        """Remove the recording, unless it is to be kept."""
        if self.keep:
            self._kept()
            return
        for path in self.recorder.files:
            path.unlink(missing_ok=True)

    def _kept(self) -> list[Path]:
        """Move the recordings to where they are looked for."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.recorder.files = [path.replace(self.path.with_name(path.name)) for path in self.recorder.files]
        self.keep = True
        return self.recorder.files
