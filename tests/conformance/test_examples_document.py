"""Every row of the hex dumps in format-spec/examples.md is what the command above it writes; in the first dump every row
that is left out is zero."""

import os
import re
import subprocess
import tempfile
import unittest

SML = os.environ["SML"]
DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../format-spec/examples.md")


def dumps():
    """For each command of the document, its rows: offset -> bytes."""
    found = []
    with open(DOCUMENT, encoding="utf-8") as document:
        for line in document:
            if line.startswith("    $ "):
                found.append((line[6:].strip(), {}))
            row = re.match(r"    ([0-9a-f]{8})  ((?:[0-9a-f]{2} ){15}[0-9a-f]{2})(?:  |$)", line)
            if row:
                found[-1][1][int(row[1], 16)] = bytes.fromhex(row[2])
    return found


class Examples(unittest.TestCase):
    def test_rows(self):
        examples = dumps()
        self.assertEqual(len(examples), 2)
        for index, (command, rows) in enumerate(examples):
            with tempfile.TemporaryDirectory() as directory, self.subTest(command):
                subprocess.run(command.replace("sml pack", f"'{SML}' pack"), shell=True, cwd=directory, check=True)
                name = re.search(r"-o (\S+)", command)[1]
                with open(os.path.join(directory, name), "rb") as container:
                    data = container.read()
                self.assertGreater(len(rows), 10)
                for offset, expected in rows.items():
                    self.assertEqual(data[offset : offset + 16], expected, hex(offset))
                if index == 0:
                    for offset in range(0, len(data), 16):
                        if offset not in rows:
                            self.assertEqual(data[offset : offset + 16], bytes(16), hex(offset))


if __name__ == "__main__":
    unittest.main()
