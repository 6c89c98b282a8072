#!/usr/bin/env python3
"""sml serve-stdio answers as format-spec/vectors/serve/ says."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
import vectors_valid  # noqa: E402

VECTORS = pathlib.Path(__file__).resolve().parents[2] / "format-spec" / "vectors"
SML = os.environ["SML"]


def part_of(answer, expected):
    """Of an answer what is expected of it, field by field and element by element."""
    if isinstance(expected, dict) and isinstance(answer, dict):
        return {name: part_of(answer.get(name), value) for name, value in expected.items()}
    if isinstance(expected, list) and isinstance(answer, list) and len(answer) == len(expected):
        return [part_of(one, other) for one, other in zip(answer, expected)]
    return answer


class Transcripts(unittest.TestCase):
    def test_answers_are_those_of_the_transcripts(self):
        transcripts = sorted((VECTORS / "serve").glob("*.json"))
        self.assertTrue(transcripts)
        for path in transcripts:
            document = json.loads(path.read_text(encoding="utf-8"))
            lines = [json.dumps(exchange["request"]).encode() + b"\n" for exchange in document["exchanges"]]
            run = subprocess.run([SML, "serve-stdio", VECTORS / document["container"]], input=b"".join(lines),
                                 capture_output=True, check=True, timeout=60)  # fmt: skip
            rest = run.stdout
            for exchange in document["exchanges"]:
                line, _, rest = rest.partition(b"\n")
                answer = json.loads(line)
                payload, rest = rest[: answer.get("payload", 0)], rest[answer.get("payload", 0) :]
                self.assertEqual(part_of(answer, exchange["answer"]), exchange["answer"], exchange["request"])
                self.assertEqual(vectors_valid.shown_content(payload), exchange.get("bytes", ""), exchange["request"])
                if "errors" not in exchange["answer"]:
                    self.assertNotIn("errors", answer)
            self.assertEqual((rest, run.stderr), (b"", b""))


if __name__ == "__main__":
    unittest.main()
