package doctor

import (
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// interrupts are those of queues 0 and up, from number 41, each of which goes to the CPUs
// given.
func interrupts(cpus ...[]int) map[int]netdev.Interrupt {
	out := map[int]netdev.Interrupt{}
	for i, c := range cpus {
		out[i] = netdev.Interrupt{Number: 41 + i, CPUs: c}
	}
	return out
}

// TestInterruptsOfQueues: queues whose interrupts all go to one CPU are one CPU.
func TestInterruptsOfQueues(t *testing.T) {
	fine := Check{Name: "eth1: receive queues", Level: OK, Detail: "2"}
	bad := Check{"eth1: receive queues", Warn, "2: the interrupts of all go to CPU 3, which handles all packets",
		"give each queue a CPU of its own, without irqbalance: echo 0 > /proc/irq/41/smp_affinity_list; echo 1 > /proc/irq/42/smp_affinity_list", nil}
	teid := map[netdev.FlowType]netdev.HashFields{"gtpu4e": netdev.HashTEID, "gtpu4u": netdev.HashTEID, "gtpu4d": netdev.HashTEID}
	for name, row := range map[string]struct {
		interrupts map[int]netdev.Interrupt
		role       config.Role
		cpus       int
		want       Check
	}{
		"one CPU of many":  {interrupts([]int{3}, []int{3}), config.RoleN6, 16, bad},
		"on N3, with TEID": {interrupts([]int{3}, []int{3}), config.RoleN3, 16, bad},
		"a CPU each":       {interrupts([]int{0}, []int{3}), config.RoleN6, 16, fine},
		"any CPU":          {interrupts([]int{0, 1}, []int{0, 1}), config.RoleN6, 16, fine},
		"not known":        {nil, config.RoleN6, 16, fine},
		"one is known":     {interrupts([]int{3}), config.RoleN6, 16, fine},
		"a single core":    {interrupts([]int{0}, []int{0}), config.RoleN6, 1, fine},
	} {
		d := device{Link: netdev.Link{Name: "eth1", Kind: "device", Driver: "ice"}, Facts: netdev.Facts{RxQueues: 2, GTPUHash: teid}, interrupts: row.interrupts}
		if got := d.queues(&config.Interface{Roles: []config.Role{row.role}}, &config.Config{}, row.cpus); !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
}

// TestQueues: one gNB is one CPU, unless the card hashes the TEID or packets are spread.
func TestQueues(t *testing.T) {
	hash := func(fields netdev.HashFields) map[netdev.FlowType]netdev.HashFields {
		return map[netdev.FlowType]netdev.HashFields{"gtpu4": fields, "gtpu4e": fields, "gtpu4u": fields, "gtpu4d": fields}
	}
	outer := netdev.HashSource | netdev.HashDestination
	half := hash(outer | netdev.HashTEID)
	half["gtpu4e"] = outer
	n3, n6 := &config.Interface{Name: "n3", Roles: []config.Role{config.RoleN3}}, &config.Interface{Name: "n3", Roles: []config.Role{config.RoleN6}}
	card := netdev.Link{Name: "eth1", Kind: "device", Driver: "ice", Ethernet: true}
	veth := netdev.Link{Name: "eth1", Kind: "veth"}
	for name, row := range map[string]struct {
		link   netdev.Link
		in     *config.Interface
		queues int
		hash   map[netdev.FlowType]netdev.HashFields
		by     string
		cpus   int
		level  Level
		detail string
		fix    string
	}{
		"outer addresses": {card, n3, 8, hash(outer), "", 16, Warn, "8: the card hashes outer addresses only, so that one gNB is one CPU",
			"have the card hash the TEID: spread: {by: ue, method: card} in the configuration, or for flow in gtpu4e gtpu4u gtpu4d; do ethtool -N eth1 rx-flow-hash $flow sde; done"},
		"not of 5G":        {card, n3, 8, half, "", 16, Warn, "outer addresses only", "gtpu4e"},
		"no GTP-U":         {card, n3, 8, nil, "", 16, Warn, "outer addresses only", "spread: {by: ue}"},
		"TEID":             {card, n3, 8, hash(outer | netdev.HashTEID), "", 16, OK, "8: the card hashes the TEID", ""},
		"one queue":        {card, n6, 1, nil, "", 16, Warn, "1: one of 16 CPUs handles all packets", "spread: {by: ue}"},
		"N6":               {card, n6, 8, nil, "", 16, OK, "8", ""},
		"spread":           {card, n3, 1, nil, "ue", 16, OK, "packets are spread over CPUs by ue", ""},
		"queues unknown":   {card, n6, 0, nil, "", 16, Warn, "1: one of 16 CPUs handles all packets", "spread: {by: ue}"},
		"spread by card":   {card, n3, 8, hash(outer), "ue by card", 16, Warn, "outer addresses only", "ethtool -N eth1 rx-flow-hash"},
		"spread is off":    {card, n3, 1, nil, "off", 16, Warn, "1: one of 16", "spread"},
		"one CPU":          {card, n3, 1, nil, "", 1, OK, "1", ""},
		"a veth":           {veth, n3, 1, nil, "", 16, OK, "1", ""},
		"not an interface": {card, nil, 1, nil, "", 16, Warn, "1: one of 16", "spread"},
	} {
		by, method, _ := strings.Cut(row.by, " by ")
		spread := config.Spread{By: by, Method: method}
		d := device{Link: row.link, Facts: netdev.Facts{RxQueues: row.queues, GTPUHash: row.hash}}
		c := d.queues(row.in, &config.Config{Spread: spread}, row.cpus)
		if c.Name != "eth1: receive queues" || c.Level != row.level || !strings.Contains(c.Detail, row.detail) || !strings.Contains(c.Fix, row.fix) || (c.Fix == "") != (row.fix == "") {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestSpreadOverOneCPU: others could help it. Of two CPUs the other one receives.
func TestSpreadOverOneCPU(t *testing.T) {
	for _, row := range []struct {
		cpus  config.CPUs
		there int
		level Level
	}{
		{config.CPUs{3}, 16, Warn},
		{config.CPUs{3}, 3, Warn},
		{config.CPUs{1}, 2, OK},
		{config.CPUs{0}, 1, OK},
		{config.CPUs{2, 3}, 16, OK},
		{nil, 16, OK},
	} {
		d := device{Link: netdev.Link{Name: "eth1", Kind: "device", Driver: "ice"}}
		c := d.queues(nil, &config.Config{Spread: config.Spread{By: config.SpreadUE, CPUs: row.cpus}}, row.there)
		if c.Level != row.level || (row.level == Warn) != strings.Contains(c.Detail, "by ue: one of "+strconv.Itoa(row.there)+" handles all") ||
			(row.level == Warn) != strings.Contains(c.Fix, "spread.cpus") {
			t.Errorf("%+v: %+v", row, c)
		}
	}
}

// TestQueuesOverIPv6: the flows are those of N3's addresses.
func TestQueuesOverIPv6(t *testing.T) {
	hash := map[netdev.FlowType]netdev.HashFields{"gtpu4e": netdev.HashTEID, "gtpu4u": netdev.HashTEID, "gtpu4d": netdev.HashTEID}
	d := device{Link: netdev.Link{Name: "eth1", Kind: "device", Driver: "ice"}, Facts: netdev.Facts{RxQueues: 8, GTPUHash: hash}}
	n3, c := &config.Interface{Roles: []config.Role{config.RoleN3}}, &config.Config{}
	for address, level := range map[string]Level{"192.0.2.1": OK, "2001:db8::1": Warn} {
		c.GTPU.Addresses = []netip.Addr{netip.MustParseAddr(address)}
		if got := d.queues(n3, c, 16); got.Level != level {
			t.Errorf("N3 at %s: %+v", address, got)
		}
	}
}
