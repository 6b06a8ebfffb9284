"""Runs the Conan recipe with stand-ins for what it imports, which do what Conan's manual says of them,
and looks at what it requires and packs. What Conan itself makes of it, this does not show.

conan_recipe.py RELEASE WORK
"""

import hashlib
import importlib.util
import io
import pathlib
import re
import shutil
import sys
import tarfile
import types
import urllib.request


class Options(dict):
    __getattr__ = dict.__getitem__
    get_safe = dict.get


def get(recipe, url, sha256, strip_root):
    data = urllib.request.urlopen(url).read()
    assert hashlib.sha256(data).hexdigest() == sha256, "the hash is not that of the sources"
    assert strip_root
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive.getmembers():
            member.name = member.name.partition("/")[2]
            if member.name:
                archive.extract(member, recipe.source_folder)


def copy(recipe, pattern, source, target):
    for file in pathlib.Path(source).rglob(pattern):
        to = pathlib.Path(target) / file.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to)


def check_min_cppstd(recipe, standard):
    if int(recipe.settings.compiler_cppstd) < standard:
        raise InvalidConfiguration(f"needs C++{standard}")


class InvalidConfiguration(Exception):
    pass


def module(name, **names):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(names)


module("conan", ConanFile=object)
module("conan.errors", ConanInvalidConfiguration=InvalidConfiguration)
module("conan.tools")
module("conan.tools.build", check_min_cppstd=check_min_cppstd)
module("conan.tools.files", copy=copy, get=get)
module("conan.tools.layout", basic_layout=None)

release, work = (pathlib.Path(argument) for argument in sys.argv[1:])
shutil.rmtree(work, ignore_errors=True)
spec = importlib.util.spec_from_file_location("recipe", release / "recipes/conan/conanfile.py")
recipe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe)
compile((release / "recipes/conan/test_package/conanfile.py").read_text(), "test_package", "exec")


def make(system="Linux", cppstd=20, **chosen):
    conanfile = recipe.BideConan()
    assert set(chosen) <= set(conanfile.options)
    conanfile.options = Options({**conanfile.default_options, **chosen})
    conanfile.settings = types.SimpleNamespace(os=system, compiler_cppstd=cppstd)
    conanfile.required = []
    conanfile.requires = conanfile.required.append
    conanfile.requirements()
    return conanfile


def names(conanfile):
    return [reference.partition("/")[0] for reference in conanfile.required]


assert names(make()) == []
assert names(make(durable=True)) == []
assert names(make(sqlite=True)) == ["sqlite3"]
assert names(make(redis=True, etcd=True)) == ["hiredis", "libcurl"]
assert names(make(postgres=True, etcd=True)) == ["libcurl", "libpq"]

make().validate()
make("Windows").validate()
for bad in (make(cppstd=17), make("Windows", sqlite=True)):
    try:
        bad.validate()
    except InvalidConfiguration:
        continue
    raise AssertionError("is valid")

data = (release / "recipes/conan/conandata.yml").read_text()
found = re.search(r'"(.*?)":\s*url: "(.*?)"\s*sha256: "(.*?)"', data)
conanfile = make()
assert conanfile.version == found[1]
conanfile.conan_data = {"sources": {found[1]: {"url": found[2], "sha256": found[3]}}}
conanfile.source_folder, conanfile.package_folder = str(work / "source"), str(work / "package")
conanfile.source()
conanfile.package()
for file in ("licenses/LICENSE", "include/bide/bide.hpp", "share/cmake/bide/bideDurable.cmake",
             "share/bide/gdb/bide_gdb.py"):
    assert (work / "package" / file).exists(), file
