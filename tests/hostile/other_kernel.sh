#!/usr/bin/env bash
# Runs the hostile programs in an emulated machine with the kernel and Python of Debian 12:
#     tests/hostile/other_kernel.sh arm64|amd64 [PYTEST ARGUMENT...]
# Needs Debian with a network, qemu-system-arm or qemu-system-x86, cpio, zstd and unzip, and 1 GB in $WORK, a temporary folder
# if it is not set. Emulation is slow (half an hour or more), so all time limits are twenty times as long.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=${1:?arm64 or amd64}
shift
case $arch in
arm64) console=ttyAMA0 machine=aarch64 qemu=(qemu-system-aarch64 -M virt -cpu cortex-a72) ;;
amd64) console=ttyS0 machine=x86_64 qemu=(qemu-system-x86_64 -M q35 -cpu max) ;;
*) echo "arm64 or amd64, not $arch" && exit 2 ;;
esac
[ $# -gt 0 ] || set -- tests/hostile/test_hostile.py -m "slow or not slow"
PYTHON=${PYTHON:-.venv/bin/python}
[ -n "${WORK:-}" ] || { WORK=$(mktemp -d) && trap 'rm -rf "$WORK"' EXIT; }
root=$WORK/root
mkdir -p "$WORK"/{lists/partial,archives/partial} "$root"/{proc,sys,dev,tmp,root,newroot,repo,etc,var/tmp,usr/lib/tests}

# Debian's packages, unpacked but not installed: no program of theirs runs here.
echo "deb http://deb.debian.org/debian bookworm main" >"$WORK/sources"
touch "$WORK/status"
apt=(apt-get -qq -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State="$WORK" -o Dir::State::status="$WORK/status"
    -o Dir::Cache="$WORK" -o Dir::Etc::sourcelist="$WORK/sources" -o Dir::Etc::sourceparts=/dev/null)
"${apt[@]}" update
"${apt[@]}" install --yes --download-only --no-install-recommends python3 busybox-static bash coreutils "linux-image-$arch"
for package in "$WORK"/archives/*.deb; do dpkg -x "$package" "$root"; done
cp "$root"/boot/vmlinuz-* "$WORK/kernel"
rm -rf "$root"/boot "$root"/lib/modules "$root"/usr/share/{doc,man,locale}
ln -sf bash "$root/bin/sh"
printf 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
echo '127.0.0.1 localhost' >"$root/etc/hosts"

# The tests, what they need from PyPI, and this package, of which they use the standard library's part.
wheels=$(grep -iE '^(hypothesis|iniconfig|packaging|pluggy|psutil|pygments|pytest|pytest-timeout|sortedcontainers)==' constraints.txt)
"$PYTHON" -m pip download -q --no-deps --only-binary=:all: --python-version 3.11 --implementation cp --platform any \
    --platform "manylinux2014_$machine" --platform "manylinux_2_28_$machine" -d "$WORK/wheels" $wheels
for wheel in "$WORK"/wheels/*.whl; do unzip -qo "$wheel" -d "$root/usr/lib/tests"; done
git ls-files trl_populora tests setup.cfg pyproject.toml | tar cf - -T - | tar xf - -C "$root/repo"

# The first disk of a machine cannot be left by pivot_root, so all is copied to another one.
cat >"$root/init" <<'END'
#!/bin/bash
box=/bin/busybox
$box mount -t tmpfs -o size=80% tmpfs /newroot
for folder in bin etc lib lib64 usr var root repo sbin; do [ -e /$folder ] && $box cp -a /$folder /newroot/; done
$box mkdir -p /newroot/proc /newroot/sys /newroot/dev /newroot/tmp
$box cp /start /newroot/start
exec $box switch_root /newroot /start
END
cat >"$root/start" <<END
#!/bin/bash
export PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root PYTHONPATH=/usr/lib/tests HOSTILE_SLOWER=20
box=/bin/busybox
\$box mount -t proc proc /proc; \$box mount -t sysfs sys /sys; \$box mount -t devtmpfs dev /dev
\$box mkdir -p /dev/shm /dev/pts
for folder in /dev/shm /tmp; do \$box mount -t tmpfs tmpfs \$folder; done
\$box mount -t devpts pts /dev/pts
\$box chmod 1777 /tmp /var/tmp /dev/shm
\$box ln -s /proc/self/fd /dev/fd
\$box ifconfig lo 127.0.0.1 up
cd /repo
uname -srm; python3 --version
python3 -m pytest -p no:cacheprovider --timeout 3000 $(printf '%q ' "$@")
echo "exit status \$?"
\$box poweroff -f
END
chmod +x "$root/init" "$root/start"
(cd "$root" && find . | cpio -o -H newc --quiet | zstd -1 -q >"$WORK/disk")
"${qemu[@]}" -smp 2 -m 4G -nographic -no-reboot -net none -kernel "$WORK/kernel" -initrd "$WORK/disk" \
    -append "console=$console quiet panic=-1 rdinit=/init" </dev/null | tee "$WORK/log"
grep -q '^exit status 0' "$WORK/log"
