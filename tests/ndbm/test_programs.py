# SPDX-License-Identifier: Apache-2.0
"""Programs of others, from Debian's packages, with the library of ndbm preloaded.

Where a program of ours stands for many, it also runs on the library that it is linked with: both
must print the same. Each leaves a file named proof.pag, which shows whose library it ran on.
"""

import os
import re
import shutil

from missing import missing

HERE = os.path.dirname(os.path.abspath(__file__))


def is_ours(path):
    """Whether a file is a database of Senko, so that what ran did run on it."""
    with open(path, "rb") as file:
        return file.read(8) == b"SENKODB\0"


def both(run, command):
    """Runs a program on our library and on its own; gives what it prints."""
    ours = run(command)
    assert is_ours(run.folder / "proof.pag")
    theirs = run(command, preload=False)
    assert not is_ours(run.folder / "proof.pag")
    assert ours == theirs
    return ours


def tap(output, least):
    """Checks what a test of Perl's printed."""
    plan = re.search(r"^1\.\.(\d+)$", output, re.M)
    results = re.findall(r"^(not )?ok \d+(.*)$", output, re.M)
    assert plan and len(results) == int(plan.group(1)) >= least, output
    assert not any(failed for failed, _ in results), output
    assert not any("# skip" in what for _, what in results), output


PROOF = 'use Fcntl; use NDBM_File; { my %%h; tie %%h, "NDBM_File", "proof", O_RDWR | O_CREAT, 0600 or die $!; } do "./%s"; die $@ if $@;'


def test_perls_own_test_of_ndbm_file(run, program, perl_sources, tmp_path):
    tree = tmp_path / "perl"
    shutil.copytree(perl_sources, tree)
    folder = tree / "ext" / "NDBM_File"
    output = run([program("perl"), "-I../../lib", "-e", PROOF % "t/ndbm.t"], folder=folder)
    assert is_ours(folder / "proof.pag")
    tap(output, 131)


def test_perls_own_test_of_memoize_on_ndbm_file(run, program, perl_sources, tmp_path):
    tree = tmp_path / "perl"
    shutil.copytree(perl_sources, tree)
    folder = tree / "cpan" / "Memoize" / "t"
    output = run([program("perl"), "-e", PROOF % "tie_ndbm.t"], folder=folder)
    assert is_ours(folder / "proof.pag")
    tap(output, 4)


def test_a_perl_program(run, program):
    output = both(run, [program("perl"), os.path.join(HERE, "program.pl")])
    assert output.endswith("done\n")


def test_a_ruby_program(run, program):
    ruby = program("ruby")
    if os.system("%s -e 'require \"dbm\"' 2>/dev/null" % ruby):
        missing("ruby-dbm is not installed")
    output = both(run, [ruby, os.path.join(HERE, "program.rb")])
    assert output.endswith("done\n")


def suite(run, program, name, least):
    """One of CPython's own tests; gives how many it skipped."""
    python = program("python3.11")
    if not os.path.exists("/usr/lib/python3.11/test/%s.py" % name):
        missing("libpython3.11-testsuite is not installed")
    output = run([python, os.path.join(HERE, "suite.py"), name])
    assert is_ours(run.folder / "proof.pag")
    ran, failed, skipped = map(int, re.search(r"^ran (\d+), failed (\d+), skipped (\d+)$", output, re.M).groups())
    assert ran >= least and failed == 0, output
    return skipped


def test_pythons_own_test_of_dbm_ndbm(run, program):
    assert suite(run, program, "test_dbm_ndbm", 12) == 0


def test_pythons_own_test_of_shelve(run, program):
    assert suite(run, program, "test_shelve", 200) == 0


def test_pythons_own_test_of_dbm(run, program):
    suite(run, program, "test_dbm", 20)


def compiled(run, program, arguments):
    gcc = program("gcc")
    run([gcc, "-Wall", "-Werror", os.path.join(HERE, "program.c"), "-o", "program", *arguments], preload=False)
    return str(run.folder / "program")


def test_a_c_program_linked_with_libgdbm_compat(run, program):
    if not os.path.exists("/usr/include/ndbm.h"):
        missing("libgdbm-compat-dev is not installed")
    output = both(run, [compiled(run, program, ["-lgdbm_compat", "-lgdbm"])])
    assert output.endswith("done\n")


def test_the_same_c_program_linked_with_ours(run, program, prefix):
    """As the documents say, by pkg-config."""
    where = {"PKG_CONFIG_PATH": os.path.join(prefix, "lib", "pkgconfig")}
    flags = run([program("pkg-config"), "--cflags", "--libs", "senko_ndbm"], preload=False, **where).split()
    binary = compiled(run, program, flags)
    output = run([binary], preload=False, LD_LIBRARY_PATH=os.path.join(prefix, "lib"))
    assert output.endswith("done\n") and is_ours(run.folder / "proof.pag")


def test_the_c_library_as_it_is_installed(run, program, prefix):
    """By pkg-config, with the shared library and with the static one."""
    sources = os.path.join(HERE, "..", "..", "bindings", "c", "tests", "c")
    where = {"PKG_CONFIG_PATH": os.path.join(prefix, "lib", "pkgconfig")}
    for kind in ([], ["--static"]):
        flags = run([program("pkg-config"), *kind, "--cflags", "--libs", "senko_dbm"], preload=False, **where).split()
        if kind:
            flags[flags.index("-lsenko_dbm")] = os.path.join(prefix, "lib", "libsenko_dbm.a")
        gcc = [program("gcc"), "-I", sources, os.path.join(sources, "whole.c"), "-o", "program", *flags]
        run(gcc, preload=False)
        folder = run.folder
        libraries = {} if kind else {"LD_LIBRARY_PATH": os.path.join(prefix, "lib")}
        run([str(folder / "program"), str(folder)], preload=False, **libraries)
        assert is_ours(folder / "data.db")


def test_the_moving_of_a_database(run, program, tmp_path):
    """The commands of docs/dbm/ndbm.md: records of any bytes leave one library and enter the
    other.
    """
    with open(os.path.join(HERE, "..", "..", "docs", "dbm", "ndbm.md")) as page:
        blocks = re.findall(r"^    perl -MNDBM_File.*?\n\n", page.read(), re.M | re.S)
    assert len(blocks) == 1
    script = blocks[0].replace("LD_PRELOAD=/usr/local/lib/libsenko_ndbm.so", "LD_PRELOAD=$OURS")
    fill = 'tie %h, "NDBM_File", "old", O_RDWR | O_CREAT, 0600 or die $!; $h{"k$_\\n\\0"} = chr($_) x $_ for 0 .. 255; $h{""} = "";'
    show = 'tie %h, "NDBM_File", $ARGV[0], O_RDONLY, 0 or die $!; print map { unpack("H*", "$_=$h{$_}"), "\\n" } sort keys %h;'
    perl = [program("perl"), "-MNDBM_File", "-MFcntl", "-e"]
    folder = tmp_path / "moved"
    folder.mkdir()
    run([*perl, fill], preload=False, folder=folder)
    ours = os.path.join(os.environ["SENKO_PREFIX"], "lib", "libsenko_ndbm.so")
    run(["sh", "-e", "-c", script], preload=False, folder=folder, OURS=ours)
    assert is_ours(folder / "new.pag")
    old = run([*perl, show, "old"], preload=False, folder=folder)
    assert run([*perl, show, "new"], folder=folder) == old and old.count("\n") == 257
