#!/bin/bash
# Second stage, PID 1 on the host's root file system: mounts what programs expect, runs the command, leaves its status, dmesg
# and the way out. Runs even if the command breaks things, so no `set -e`.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TERM=dumb LANG=C.UTF-8
. /run/vm/settings

leave() {
  dmesg > /run/out/dmesg
  # The status travels in a file: any value from 0 to 255, and its absence says that the guest died.
  echo "$1" > /run/out/.status
  sync /run/out/.status
  # A write to QEMU's isa-debug-exit ends the machine at once, where a power-off would first ask every driver.
  printf '\0' | dd of=/dev/port bs=1 seek=$((0x501)) conv=notrunc status=none
  echo o > /proc/sysrq-trigger
  sleep 10
}

mkdir -p /dev/shm /dev/pts /dev/hugepages
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t devpts -o mode=620,ptmxmode=666 pts /dev/pts
mount -t hugetlbfs -o mode=1777 huge /dev/hugepages
mount -t debugfs debugfs /sys/kernel/debug
ln -sf /proc/self/fd /dev/fd
ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout
ln -sf /proc/self/fd/2 /dev/stderr
chmod 666 /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/ptmx 2> /dev/null
hostname upcie-vm
ip link set lo up 2> /dev/null

# The command's output goes out by virtio-serial, apart from the kernel's on the console. A port opens only once, and programs
# reopen /dev/stdout, so a pipe stands between.
forward() {
  local port
  for port in /sys/class/virtio-ports/*; do
    if [ "$(cat "$port/name")" = "$1" ]; then
      mkfifo -m 666 "/run/vm/$1"
      cat "/run/vm/$1" > "/dev/${port##*/}" &
      forwarders+=($!)
    fi
  done
}
forwarders=()
forward stdout
if [ -n "$vm_stderr_apart" ]; then forward stderr; else ln -s stdout /run/vm/stderr; fi

# A session of its own: the command may signal its process group, which must not be PID 1's.
setsid --wait /bin/bash /run/vm/command.sh < /dev/null > /run/vm/stdout 2> /run/vm/stderr
status=$?

# All output is out once the forwarders have ended; a daemon left behind may hold the pipe open, so do not wait for ever.
for _ in {1..20}; do kill -0 "${forwarders[@]}" 2> /dev/null || break; sleep 0.1; done
leave $status
