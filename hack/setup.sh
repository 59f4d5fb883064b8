#!/bin/sh
# Installs with apt the packages that the lab, the tests and the Makefile need beside Go, on Debian 12 or 13.
# It starts no service and upgrades no package. A second run does nothing.
set -eu

PATH=$PATH:/usr/sbin:/sbin
missing=

# need PACKAGE COMMAND-OR-FILE...: installs the package if one of its commands or files is missing.
need() {
	package=$1
	shift
	for thing in "$@"; do
		case $thing in
		/*) test -e "$thing" && continue ;;
		*) command -v "$thing" >/dev/null && continue ;;
		esac
		missing="$missing $package"
		return
	done
}

need openvswitch-switch ovs-vswitchd ovs-vsctl ovsdb-server ovsdb-tool /usr/share/openvswitch/vswitch.ovsschema
need ovn-central ovn-northd /usr/share/ovn/ovn-nb.ovsschema /usr/share/ovn/ovn-sb.ovsschema
need ovn-host ovn-controller
need ovn-common ovn-nbctl ovn-sbctl
need ethtool ethtool
need iproute2 ip ss tc
need iptables iptables
need iputils-ping ping
need isc-dhcp-client dhclient
need keepalived keepalived
need procps ps
need strace strace
need containerd containerd ctr containerd-shim-runc-v2
need runc runc
need nftables nft
need util-linux nsenter setpriv
need make make
need git git
need ca-certificates /etc/ssl/certs/ca-certificates.crt

[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "setup: no apt-get here; please install:$missing" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "setup: needs root to install:$missing" >&2
		exit 1
	fi
	exec sudo -- sh "$0"
fi

echo "setup: installing$missing"

# invoke-rc.d runs this file; exit code 101 means "do not start, do not restart".
policy=/usr/sbin/policy-rc.d
ours=
log=$(mktemp)
finish() {
	code=$?
	trap - EXIT HUP INT TERM
	[ -z "$ours" ] || rm -f "$policy"
	if [ "$code" -ne 0 ]; then
		tail -n 20 "$log" >&2
		echo "setup: apt could not install:$missing" >&2
	fi
	rm -f "$log"
	exit "$code"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

if [ ! -e "$policy" ]; then
	ours=yes
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
install() {
	# shellcheck disable=SC2086 # a list of package names
	apt-get install -y -q --no-install-recommends --no-upgrade $missing >"$log" 2>&1 </dev/null
}
# On a fresh machine the package lists are missing or old, so the second attempt updates them.
install || { apt-get update -q >"$log" 2>&1 && install; }
