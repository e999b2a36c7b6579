"""Fails where a file under src/ includes a module that its own module's DEPS do not name."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
deps = {}
for lists in sorted(root.glob("src/*/CMakeLists.txt")):
    for found in re.finditer(r"longtune_module\((\w+)([^)]*)\)", lists.read_text()):
        named = re.search(r"\bDEPS ([a-z0-9_ ]+)", found[2])
        deps[found[1]] = {found[1], *(named[1].split() if named else [])}
bad = []
for path in sorted((root / "src").rglob("*")):
    if path.suffix not in {".h", ".cpp", ".inc", ".cu", ".cuh"}:
        continue
    module = path.relative_to(root / "src").parts[0]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r'#include "(\w+)/', line)
        if found and found[1] in deps and found[1] not in deps[module]:
            bad.append(f"{path.relative_to(root)}:{number}: {module} may not include {found[1]}")
print("\n".join(bad) or "layering holds")
sys.exit(bool(bad))
