package ovnport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// The port of an IPAMClaim belongs to the virtual machine that the IPAMClaim is made for, and not to one of its pods.
// So its key and its name are made from the IPAMClaim, and each of its addresses and its MAC is a claim that stays when
// the port goes. One more row, at ovndb.IPAMClaimKey, says what the IPAMClaim has. The controller deletes it, with the
// claims, when the IPAMClaim is deleted.

// claimContent is what an IPAMClaim has, by its row.
type claimContent struct {
	ids     map[string]string // of the row
	network string
	has     string   // MAC and addresses, as text
	claims  []string // the keys of the claims on them
}

func parseContent(row *nb.Copp) *claimContent {
	if row == nil {
		return nil
	}
	ids := row.ExternalIDs
	return &claimContent{ids, ids[ovndb.IPAMClaimNetwork], ids[ovndb.IPAMClaimHas], strings.Fields(ids[keyClaims])}
}

// readContents reads what the IPAMClaims of the requests have. Without IPAMClaims it reads nothing.
func (n *NB) readContents(ctx context.Context, requests []Request) (map[string]*claimContent, error) {
	var keys []string
	for i := range requests {
		if id := requests[i].IPAMClaim; id != "" {
			keys = append(keys, ovndb.IPAMClaimKey(id))
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	if err := n.db.WaitConnected(ctx); err != nil {
		return nil, err
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, n.db, nb.CoppTable, keys, "_uuid", "external_ids")
	has := map[string]*claimContent{}
	for _, row := range rows {
		has[row.ExternalIDs[ovndb.IPAMClaimMark]] = parseContent(row)
	}
	return has, err
}

// ipamClaimPort ends the name of an IPAMClaim's port. No interface has a name with a colon.
const ipamClaimPort = "/ipam:claim"

func claimPortName(claim string) string { return claim + ipamClaimPort }

// IPAMClaimOf returns the IPAMClaim "<namespace>/<name>" of a port with this name; "": it has none.
func IPAMClaimOf(portName string) string {
	claim, is := strings.CutSuffix(portName, ipamClaimPort)
	if !is {
		return ""
	}
	return claim
}

// keep gives the request what its IPAMClaim has. A MAC that is requested replaces that of the IPAMClaim.
func (r *Request) keep(has *claimContent) error {
	if has == nil {
		return nil
	}
	refuse := func(why string, args ...any) error {
		return conf.Errorf(conf.CodeInvalidConfig, "name an IPAMClaim of this network, or delete this one: its addresses "+
			"are free then", "interface %s: IPAMClaim %s has "+why, append([]any{r.Interface, r.IPAMClaim}, args...)...)
	}
	if id := r.Network.ID(); has.network != id {
		return refuse("addresses of network %s, not of network %s", has.network, id)
	}
	words := strings.Fields(has.has)
	mac, err := net.ParseMAC(strings.Join(words[:min(1, len(words))], ""))
	if err != nil {
		return refuse("no MAC: %q", has.has)
	}
	if r.MAC == nil {
		r.MAC = mac
	}
	r.IPs = nil
	for _, word := range words[1:] {
		ip, err := netip.ParsePrefix(word)
		if err != nil {
			return refuse("no address: %q", has.has)
		}
		if len(r.Network.Subnets) > 0 {
			at := r.Network.SubnetOf(ip.Addr())
			if at < 0 {
				return refuse("the address %s, which is in no subnet of network %s", ip.Addr(), r.Network.ID())
			}
			ip = netip.PrefixFrom(ip.Addr(), r.Network.Subnets[at].Bits())
		}
		r.IPs = append(r.IPs, ip)
	}
	return nil
}

// has is the text of the draft's MAC and addresses, in the row of its IPAMClaim.
func (d *draft) has() string {
	p := d.port()
	words := []string{p.MAC.String()}
	for _, a := range p.Addresses {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// holds reports whether a claim is one of the draft's IPAMClaim.
func (d *draft) holds(claim *nb.Copp) bool {
	id := d.request.IPAMClaim
	return id != "" && claim.ExternalIDs[ovndb.IPAMClaimMark] == id
}

func (d *draft) ipamClaimRow() *nb.Copp {
	id, keys := d.request.IPAMClaim, make([]string, len(d.reservations))
	for i, r := range d.reservations {
		keys[i] = r.key
	}
	return &nb.Copp{
		UUID: ovndb.IPAMClaimKey(id), Name: "ovn-multinet IPAMClaim " + id,
		ExternalIDs: map[string]string{
			keyKind: ovndb.IPAMClaimKind, ovndb.IPAMClaimMark: id, ovndb.IPAMClaimNetwork: d.request.Network.ID(),
			ovndb.IPAMClaimHas: d.has(),
			keyClaims:          strings.Join(keys, " "),
		},
	}
}

// hold makes the IPAMClaim have the draft's addresses and MAC, and nothing else.
func (e *ensureCall) hold(t *txn, d *draft) error {
	if d.content == nil && d.stored == nil {
		t.guardIPAMClaimLimits(&d.request, e.owner.Namespace)
	}
	if err := e.holdRow(t, d); err != nil {
		return err
	}
	for i := range d.reservations {
		if key := d.reservations[i].key; slices.Contains(d.claimed, key) {
			t.add(ovndb.Holds(nb.CoppTable, key, "external_ids", ovndb.IPAMClaimMark, d.request.IPAMClaim))
		} else if err := e.insertClaim(t, d, i); err != nil {
			return err
		}
	}
	for _, key := range d.claimed {
		if !slices.ContainsFunc(d.reservations, func(r reservation) bool { return r.key == key }) {
			t.add(deleteClaim(key, d.key()))
		}
	}
	return nil
}

// guardIPAMClaimLimits asserts that IPAMClaims of the namespace may get new addresses. The controller counts them, and
// what a tenant writes into an IPAMClaim has no say.
func (t *txn) guardIPAMClaimLimits(request *Request, namespace string) {
	for _, network := range []string{"", request.Network.ID()} {
		t.claimLimits[len(t.ops)] = request
		t.add(ovndb.Absent(nb.CoppTable, ovndb.IPAMClaimLimitKey(namespace, network)))
	}
}

// settleIPAMClaimLimit returns why the IPAMClaim of a request gets no addresses; nil: it may have some by now.
func (e *ensureCall) settleIPAMClaimLimit(ctx context.Context, r *Request) error {
	keys := []string{
		ovndb.IPAMClaimLimitKey(e.owner.Namespace, ""), ovndb.IPAMClaimLimitKey(e.owner.Namespace, r.Network.ID()),
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, e.db, nb.CoppTable, keys, "external_ids")
	if err != nil || len(rows) == 0 {
		return err
	}
	return conf.Errorf(conf.CodeNoAddressLeft, "delete IPAMClaims that no machine needs",
		"interface %s: IPAMClaim %s gets no addresses: %s", r.Interface, r.IPAMClaim,
		conf.OneLine(rows[0].ExternalIDs[ovndb.IPAMClaimLimit], conf.MaxReason))
}

// holdRow writes the row of the draft's IPAMClaim, or asserts that it is as it was read.
func (e *ensureCall) holdRow(t *txn, d *draft) error {
	row := d.ipamClaimRow()
	if d.content == nil {
		op, err := e.db.Insert(row)
		t.add(op)
		return err
	}
	t.add(ovndb.HoldsAll(nb.CoppTable, row.UUID, "external_ids", d.content.ids))
	if d.content.has != row.ExternalIDs[ovndb.IPAMClaimHas] || d.content.ids[keyClaims] != row.ExternalIDs[keyClaims] {
		t.add(ovndb.Update(nb.CoppTable, row.UUID, ovsdb.Row{"external_ids": ovndb.Map(row.ExternalIDs)}))
	}
	return nil
}

// settleIPAMClaim compares a draft with the rows of its IPAMClaim. If the IPAMClaim has something else than the draft
// was made with, the draft is made again. settled says that the next attempt can begin.
func (e *ensureCall) settleIPAMClaim(
	ctx context.Context, d *draft, ports map[string]*nb.LogicalSwitchPort, claims map[string]*nb.Copp,
) (settled bool, err error) {
	has := parseContent(claims[ovndb.IPAMClaimKey(d.request.IPAMClaim)])
	if (has == nil) != (d.content == nil) || has != nil && has.has != d.content.has {
		again, err := newDraft(&e.owner, d.asked, has)
		if err == nil {
			*d = *again
		}
		return true, err
	}
	d.content = has
	for _, r := range d.reservations { // rows may have been deleted by hand
		claim := claims[r.key]
		d.claimed = slices.DeleteFunc(d.claimed, func(key string) bool { return key == r.key })
		if claim != nil && d.holds(claim) {
			d.claimed = append(d.claimed, r.key)
		}
	}
	if row := ports[d.key()]; row != nil {
		return true, e.settleOlder(ctx, d, row)
	}
	return false, nil
}

// settleOtherIPAMClaim reads the IPAMClaim of a claim that is in the way. If it does not have the claim any more, the
// claim is stale and deleted.
func (e *ensureCall) settleOtherIPAMClaim(ctx context.Context, claim *nb.Copp) (settled bool, err error) {
	key := ovndb.IPAMClaimKey(claim.ExternalIDs[ovndb.IPAMClaimMark])
	_, rows, err := e.read(ctx, []string{key})
	if err != nil {
		return false, err
	}
	gone, has := ovndb.Absent(nb.CoppTable, key), parseContent(rows[key])
	switch {
	case has == nil:
	case slices.Contains(has.claims, claim.UUID):
		return false, nil
	default:
		gone = ovndb.HoldsAll(nb.CoppTable, key, "external_ids", has.ids)
	}
	_, err = e.db.Transact(ctx, []ovsdb.Operation{gone, deleteClaim(claim.UUID, claim.ExternalIDs[keyPort])})
	if _, raced := errors.AsType[*ovndb.Refused](err); raced {
		err = nil
	}
	return true, err
}
