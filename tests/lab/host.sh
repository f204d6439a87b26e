#!/bin/sh
# One lab host, seen from just outside it. lab.py starts this as PID 1 of fresh mount, network and process
# namespaces, so everything made here (mounts, addresses, processes) vanishes when this process ends.
#   host.sh ROOTFS FOLDER ADDRESS GATEWAY|none ID      ID: <home tag>/<lab>/<host>, also the name of its cgroup
set -eu
rootfs=$1 folder=$2 address=$3 gateway=$4 id=$5

read -r _ # lab.py says when eth0 has arrived; end of file instead means that lab.py is gone

ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
[ "$gateway" = none ] || ip route add default via "$gateway"

mount -t cgroup2 cgroup2 /sys/fs/cgroup # systemd-nspawn wants it here, whatever this machine mounts
cgroup=/sys/fs/cgroup/$id
mkdir -p "$cgroup/loop"
echo 0 >"$cgroup/loop/cgroup.procs"
mount -t overlay overlay -o "lowerdir=$rootfs,upperdir=$folder/upper,workdir=$folder/work" "$folder/merged"
mount -t tmpfs -o mode=755 tmpfs /run # systemd-nspawn's locks and sockets stay in here

export SYSTEMD_NSPAWN_API_VFS_WRITABLE=network # a host may set its own net.* sysctls
export SYSTEMD_NSPAWN_TMPFS_TMP=0              # /tmp on the disk: as memory it is too small to unpack wheels
while :; do
  status=0
  # Without bpf(2) and its capabilities, DeviceAllow= and IPAddressDeny= would silently not be enforced.
  (
    echo 0 >"$cgroup/cgroup.procs"
    exec systemd-nspawn --quiet --directory="$folder/merged" --machine="${id##*/}" --hostname="${id##*/}" \
      --register=no --keep-unit --link-journal=no --resolv-conf=off --timezone=off --console=read-only \
      --network-namespace-path=/proc/self/ns/net \
      --capability=CAP_BPF,CAP_PERFMON,CAP_NET_ADMIN --system-call-filter=bpf --boot
  ) </dev/null || status=$?
  [ "$status" = 133 ] || exit "$status" # 133: the host asked for a reboot
done
