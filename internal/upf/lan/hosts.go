package upf

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/session"
)

// listenEvery is how often hosts behind Ethernet sessions are looked for, of which
// an SMF is to be told (TS 23.501 section 5.6.10.2, MACAR).
const listenEvery = time.Second

// listeners are the sessions whose hosts are to be told of.
type listeners struct {
	mu  sync.Mutex
	all map[uint64]bool
}

func (l *listeners) want(seid uint64, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !is {
		delete(l.all, seid)
		return
	}
	if l.all == nil {
		l.all = map[uint64]bool{}
	}
	l.all[seid] = true
}

func (l *listeners) list() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]uint64, 0, len(l.all))
	for seid := range l.all {
		out = append(out, seid)
	}
	return out
}

// reportsHosts says that a URR of the session tells of hosts.
func reportsHosts(s *session.Session) bool {
	return slices.ContainsFunc(s.URRs, func(r session.URR) bool { return r.Trigger&session.TriggerMACAddresses != 0 })
}

// listen tells of hosts that come and go, until ctx ends.
func (u *UPF) listen(ctx context.Context) error {
	every := time.NewTicker(listenEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
			u.lookForHosts()
		}
	}
}

func (u *UPF) lookForHosts() {
	wanted := u.hosts.list()
	if len(wanted) == 0 {
		return
	}
	all, err := u.dp.Stations()
	if err != nil {
		u.log.Error("cannot read which hosts are behind Ethernet sessions", "error", err)
		return
	}
	of := map[uint64][]dataplane.Station{}
	for _, s := range all {
		of[s.Session] = append(of[s.Session], s)
	}
	for _, seid := range wanted {
		if e := u.entry(seid); e != nil && e.hears(of[seid]) {
			u.check(e)
		}
	}
}

// hears says whether there is something to tell of a session's hosts.
func (e *entry) hears(list []dataplane.Station) (news bool) {
	e.lock()
	defer e.unlock()
	if e.gone || e.usage == nil {
		return false
	}
	s := e.session()
	for i := range e.usage.measurements {
		urr, m := &s.URRs[i], &e.usage.measurements[i]
		if urr.Trigger&session.TriggerMACAddresses == 0 {
			continue
		}
		m.hosts = active(list, urr.EthernetIdle)
		news = news || !slices.Equal(m.hosts, m.told)
	}
	return news
}

// active are those that were heard in that time; 0: whenever it was.
func active(list []dataplane.Station, within time.Duration) (out [][6]byte) {
	for _, s := range list {
		if within == 0 || s.Idle < within {
			out = append(out, s.MAC)
		}
	}
	slices.SortFunc(out, compareMACs)
	return slices.Compact(out) // of two links, while a session moves
}

func compareMACs(a, b [6]byte) int { return bytes.Compare(a[:], b[:]) }

// without are those of a that b does not have, both sorted.
func without(a, b [][6]byte) (out [][6]byte) {
	for _, mac := range a {
		if _, has := slices.BinarySearchFunc(b, mac, compareMACs); !has {
			out = append(out, mac)
		}
	}
	return out
}
