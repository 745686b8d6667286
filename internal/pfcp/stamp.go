package pfcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
)

// stamps are our Recovery Time Stamps, as PFCP has them. A value never changes once
// others can see it.
type stamps struct {
	Own uint32 `json:"recovery"` // 0: not known yet
	// Later are those of addresses whose SMF has to hear that we removed its sessions.
	Later map[netip.Addr]uint32 `json:"later,omitempty"`
}

// to returns the Recovery Time Stamp that an SMF gets.
func (t *stamps) to(smf netip.Addr) uint32 {
	if later, is := t.Later[smf]; is {
		return later
	}
	return t.Own
}

// areLater says whether one of these addresses gets another stamp than our own.
func (t *stamps) areLater(smf []netip.Addr) bool {
	return slices.ContainsFunc(smf, func(addr netip.Addr) bool { return t.to(addr) != t.Own })
}

// newStamp is the Recovery Time Stamp of now.
func newStamp() uint32 { return uint32(time.Now().Unix() + wire.Epoch) }

// setStamp has all addresses of an association get one Recovery Time Stamp of ours: the
// latest that they and those of the earlier association got, or a later one. It is saved
// before anybody gets it.
func (n *node) setStamp(a, old *association) {
	ps, t := n.s.peers.Load(), n.s.stamps.Load()
	addrs := a.addrs
	if old != nil {
		addrs = append(slices.Clone(addrs), old.addrs...)
	}
	stamp := t.Own
	for _, addr := range addrs {
		if had := t.to(addr); isLater(had, stamp) {
			stamp = had
		}
	}
	if a.renewed {
		stamp++
		if now := newStamp(); isLater(now, stamp) {
			stamp = now
		}
	}
	next := &stamps{Own: t.Own, Later: maps.Clone(t.Later)}
	if len(next.Later) >= maxAssociations {
		maps.DeleteFunc(next.Later, func(addr netip.Addr, _ uint32) bool { return len(ps.at(addr)) == 0 })
	}
	for _, addr := range a.addrs {
		if next.to(addr) == stamp {
			continue
		}
		if next.Later == nil {
			next.Later = map[netip.Addr]uint32{}
		}
		next.Later[addr] = stamp
	}
	if !maps.Equal(next.Later, t.Later) {
		n.stamped = n.s.saveStamps(next)
		n.s.stamps.Store(next)
	}
}

// saveStamps saves our Recovery Time Stamps, first with the sessions.
func (s *Server) saveStamps(t *stamps) bool {
	saved := s.saveState(serverKey, t)
	s.writeStampFile(t, saved)
	return saved
}

// stampContent is what StampFile has. Another boot of the machine lacks the sessions.
func stampContent(t *stamps) string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	content := fmt.Sprintf("%d %s\n", t.Own, strings.TrimSpace(string(boot)))
	if len(t.Later) > 0 {
		later, _ := json.Marshal(t.Later) // it never fails
		content += string(later) + "\n"
	}
	return content
}

// readStampFile returns the Recovery Time Stamps of an earlier process; none if there is
// no file of this boot.
func (s *Server) readStampFile() *stamps {
	t := &stamps{}
	b, err := os.ReadFile(s.cfg.StampFile)
	first, later, _ := strings.Cut(string(b), "\n")
	if err == nil {
		_, err = fmt.Sscan(first, &t.Own)
	}
	if err == nil && later != "" {
		err = json.Unmarshal([]byte(later), &t.Later)
	}
	if err != nil || string(b) != stampContent(t) {
		return &stamps{}
	}
	return t
}

// writeStampFile has StampFile hold the Recovery Time Stamps if the sessions have them
// too, else nothing: the file never has one that is older than theirs.
func (s *Server) writeStampFile(t *stamps, saved bool) {
	path := s.cfg.StampFile
	if path == "" {
		return
	}
	content := stampContent(t)
	if had, err := os.ReadFile(path); saved && err == nil && string(had) == content {
		return
	}
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil && saved {
		next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
		if err = os.WriteFile(next, []byte(content), 0o600); err == nil {
			err = os.Rename(next, path)
		}
	}
	if err != nil {
		s.log.Warn("the next start answers heartbeats only when all sessions are there", "event", logevent.PFCPStampUnsaved, "error", err)
	}
}
