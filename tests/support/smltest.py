"""What the tests at the process boundary share: running sml, and comparing exactly."""

import os
import shutil
import subprocess
import tempfile
import unittest

SML = os.environ["SML"]
SANITIZED = os.environ.get("SML_SANITIZE", "") != ""


class SmlTest(unittest.TestCase):
    """Each test has an empty directory, `self.dir`, in which sml runs."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="sml-test.")

    def tearDown(self):
        shutil.rmtree(self.dir)

    def path(self, name):
        return os.path.join(os.fsencode(self.dir), os.fsencode(name))

    def write(self, name, data=b""):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def tree(self, name):
        """Every regular file below a directory: relative name (bytes) -> bytes. Links are followed."""
        top = self.path(name)
        found = {}
        for directory, _, files in os.walk(top):
            for file in files:
                path = os.path.join(directory, file)
                if os.path.isfile(path):
                    with open(path, "rb") as opened:
                        found[os.path.relpath(path, top)] = opened.read()
        return found

    def run_sml(self, *arguments, stdin=b"", env=None, timeout=120):
        return subprocess.run(
            [SML, *arguments],
            cwd=self.dir,
            input=stdin,
            capture_output=True,
            timeout=timeout,
            env={**os.environ, **(env or {})},
            check=False,
        )

    def ok(self, *arguments, stdin=b"", env=None):
        """Standard output of a command that does its work and says nothing else."""
        done = self.run_sml(*arguments, stdin=stdin, env=env)
        self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
        return done.stdout

    def fails(self, code, message, *arguments, stdin=b"", env=None):
        """A command that fails with one line that contains `message`, perhaps with a hint. Returns what it gave before."""
        done = self.run_sml(*arguments, stdin=stdin, env=env)
        lines = done.stderr.decode("utf-8", "backslashreplace").splitlines()
        self.assertEqual(done.returncode, code, (arguments, lines))
        self.assertTrue(lines, arguments)
        self.assertTrue(lines[0].startswith("sml"), lines)
        self.assertIn(message, lines[0])
        self.assertLessEqual(len(lines), 2, lines)
        if len(lines) == 2:
            self.assertTrue(lines[1].startswith("hint: "), lines)
        return done.stdout

    def lines(self, *arguments, **keywords):
        return self.ok(*arguments, **keywords).split(b"\n")[:-1]

    def left_over(self, directory="."):
        """Names of temporary files of sml."""
        return [n for n in os.listdir(self.path(directory)) if n.endswith(b".tmp")]


def stem(key):
    """The key up to the first dot of its base name, leading dots not counted (format-spec/keys.md)."""
    directory, slash, base = key.rpartition(b"/")
    dots = len(base) - len(base.lstrip(b"."))
    end = base.find(b".", dots)
    return directory + slash + (base if end < 0 else base[:end])


def name_order(keys):
    return sorted(keys, key=lambda key: (stem(key), key))
