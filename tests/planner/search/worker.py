"""One of several processes that share a study: `worker.py URL SEED TRIALS SLOT`. It may only try its own threads' half
of the space for itself, so that what it returns shows whether it learns from the others.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from conftest import SPACE, seconds

from twofold.planner.search.space import Point
from twofold.planner.search.storage import storage_from_url
from twofold.planner.search.study import search

if __name__ == "__main__":
    url, seed, trials = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    storage = storage_from_url(url)
    found = search(
        SPACE, seconds, Point(6, "f16", 0, 1, 64, 4), n_trials=trials, seed=seed, storage=storage, study_name="shared"
    )
    print(json.dumps({"best": asdict(found.best), "seconds": found.outcome.seconds, "trials": found.n_trials}))
