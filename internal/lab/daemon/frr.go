package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// frrDir is where the frr package puts the daemons.
const frrDir = "/usr/lib/frr"

// StartFRR starts zebra, and the other daemons of the node, with everything
// that they write in the node's directory.
func StartFRR(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if n.FRR == nil {
		return nil
	}
	dir := in.File(n, "frr")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	u, err := user.Lookup("frr") // to whom the daemons drop
	if err != nil {
		return fmt.Errorf("%w: install the package frr", err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2, os.Chown(dir, uid, gid)); err != nil {
		return err
	}
	daemons := append([]string{"zebra"}, n.FRR.Daemons...)
	text := "hostname " + n.Name + "\n" + n.FRR.Config
	if n.FRR.ISIS != nil {
		daemons = append(daemons, "isisd")
		text = isisText(n.FRR.ISIS, in.Topology, n) + text
	}
	if err := os.WriteFile(filepath.Join(dir, "frr.conf"), []byte(text), 0o644); err != nil {
		return err
	}
	for _, daemon := range daemons {
		path := filepath.Join(frrDir, daemon)
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: install the package frr", err)
		}
		socket := filepath.Join(dir, daemon+".vty")
		if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // of one that was killed
			return err
		}
		isReady := func() error { // then its command socket appears
			_, err := os.Stat(socket)
			return err
		}
		if err := in.StartAwait(ctx, n, daemon, 10*time.Second, isReady, path, "-f", filepath.Join(dir, "frr.conf"),
			"-i", filepath.Join(dir, daemon+".pid"), "-z", filepath.Join(dir, "zserv.api"), "--vty_socket", dir,
			"-A", "127.0.0.1", "-P", "0", "--log", "stdout", "--log-level", "notifications"); err != nil {
			return err
		}
	}
	return nil
}

// A neighbour that says nothing is gone after some seconds; that a link is
// down is seen at once. The SPF runs 10 ms after a change, or within 200 ms if
// it ran just before. The order counts: isisd makes its first LSP at the line net,
// and the next one only when the interval that it knows by then is over; and it
// does not come back to routes that a route-map did not permit before it was
// written.
const isisInterface = `interface %s
 ipv6 router isis core
 isis circuit-type level-2-only
 isis network point-to-point
 isis hello-interval 1
 isis hello-multiplier %d
 isis metric %d
`

// isisLink has a link be in the traffic engineering database.
const isisLink = ` link-params
  enable
 exit-link-params
`

const isisRouter = `interface lo
 ipv6 router isis core
 isis passive
router isis core
 lsp-gen-interval 1
 is-type level-2-only
 metric-style wide
 net 49.0001.0000.0000.%04d.00
 spf-delay-ietf init-delay 10 short-delay 100 long-delay 200 holddown 1000 time-to-learn 500
`

// isisText is the configuration of the node's isisd, and of zebra.
func isisText(i *topology.ISIS, t *topology.Topology, n *topology.Node) string {
	var b strings.Builder
	for _, l := range t.LinksOf(n) {
		here, there := l.From(n.Name)
		if peer := t.Node(there.Node); peer.FRR == nil || peer.FRR.ISIS == nil {
			continue
		}
		lost := 3
		if i.TE { // links may be full, of data and of hellos
			lost = 20
		}
		fmt.Fprintf(&b, isisInterface, here.Name, lost, cmp.Or(i.Metrics[here.Name], 10))
		if i.TE {
			b.WriteString(isisLink)
		}
	}
	te := ""
	if i.TE {
		te = fmt.Sprintf(" mpls-te on\n mpls-te router-address ipv6 %v\n", netip.MustParsePrefix(n.Addresses[0]).Addr()) // it is valid: validated
	}
	if len(i.Kernel) == 0 {
		fmt.Fprintf(&b, isisRouter+te, i.System)
		return b.String()
	}
	for _, prefix := range i.Kernel {
		fmt.Fprintf(&b, "ipv6 prefix-list kernel permit %s\n", prefix)
	}
	b.WriteString("route-map kernel permit 10\n match ipv6 address prefix-list kernel\n")
	fmt.Fprintf(&b, isisRouter+te+" redistribute ipv6 kernel level-2 route-map kernel\n", i.System)
	return b.String()
}
