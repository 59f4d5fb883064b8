#!/usr/bin/busybox sh
# The first process of the guest: makes the virtual functions, runs /e2e/order and reports its code.
# The shell runs the programs of busybox without a search.

# end CODE: report the code by QEMU's isa-debug-exit, which ends the machine. 64 marks a code of ours.
end() {
	sync
	code=$(($1 < 63 ? $1 : 63))
	printf "\\$(printf %o $((64 | code)))" | dd of=/dev/port bs=1 seek=$((0x501)) conv=notrunc 2>/dev/null
	sleep 60
}

fail() {
	echo "guest: $*"
	end 2
}

# await COMMAND...: an emulated machine on a busy one takes seconds for what is nothing elsewhere.
await() {
	for try in $(seq 2400); do
		"$@" && return
		usleep 50000
	done
	fail "waited in vain for: $*"
}

interface() { [ -n "$(ls "$1/net" 2>/dev/null)" ]; }
carrier() { [ "$(cat "/sys/class/net/$1/carrier" 2>/dev/null)" = 1 ]; }

# rename DEVICE NAME: name the interface of a device.
rename() {
	await interface "$1"
	/usr/bin/ip link set dev "$(ls "$1/net")" name "$2" || fail "name the interface of $1"
}

carriers() {
	for name in $names; do /usr/bin/ip link set dev "$name" up; done
	for name in $names; do await carrier "$name"; done
}

/usr/bin/busybox mount -t proc proc /proc # the shell finds its own programs by /proc/self/exe
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
/usr/bin/ip link set dev lo up
for module in $(cat /modules/order); do
	insmod "/modules/$module.ko" || fail "load module $module"
done

# pf0, pf1 are the physical functions, pf0v0 and on the virtual ones.
names=
for device in /sys/bus/pci/devices/*/sriov_totalvfs; do
	device=${device%/*}
	name=pf$(echo $names | wc -w)
	rename "$device" "$name"
	names="$names $name"
done
carriers
for name in $names; do # the kernel waits a second for each
	echo 4 >"/sys/class/net/$name/device/sriov_numvfs" &
done
wait
carriers # the links went down meanwhile
# The driver comes last: one that finds its device without a link does not look again.
insmod /modules/igbvf.ko || fail "load module igbvf"
for name in $names; do
	for v in 0 1 2 3; do rename "/sys/class/net/$name/device/virtfn$v" "${name}v$v"; done
done
sh /e2e/order
end $?
