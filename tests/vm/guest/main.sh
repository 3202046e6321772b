#!/bin/busybox sh
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=dash
# Second stage, PID 1 on the host's root file system: runs the command, leaves its status and dmesg, and ends the machine.
# Goes on whatever the command breaks, so no `set -e`.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TERM=dumb LANG=C.UTF-8
box=/run/vm/busybox

leave() {
  $box dmesg > /run/out/dmesg
  # The status travels in a file: any value from 0 to 255, and its absence says that the guest died.
  echo "$1" > /run/out/.status
  # A write to QEMU's isa-debug-exit ends the machine at once, where a power-off would first ask every driver.
  printf '\0' | $box dd of=/dev/port bs=1 seek=$((0x501)) conv=notrunc 2> /dev/null
  echo o > /proc/sysrq-trigger
  $box sleep 10
}

# The command's output goes out by virtio-serial, apart from the kernel's on the console. A port opens only once, and programs
# reopen /dev/stdout, so a pipe stands between.
forwarders=
forward() {
  for port in /sys/class/virtio-ports/*; do
    read -r name < "$port/name"
    if [ "$name" = "$1" ]; then
      $box mkfifo -m 666 "/run/vm/$1"
      $box cat "/run/vm/$1" > "/dev/${port##*/}" &
      forwarders="$forwarders $!"
    fi
  done
}
forward stdout
if [ -e /run/vm/streams_apart ]; then forward stderr; else $box ln -s stdout /run/vm/stderr; fi

# A session of its own: the command may signal its process group, which must not be PID 1's.
$box setsid $box sh /run/vm/command.sh < /dev/null > /run/vm/stdout 2> /run/vm/stderr
status=$?

# All output is out once the forwarders have ended; a daemon left behind may hold the pipe open, so do not wait for ever.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  # shellcheck disable=SC2086
  kill -0 $forwarders 2> /dev/null || break
  $box sleep 0.2
done
leave "$status"
