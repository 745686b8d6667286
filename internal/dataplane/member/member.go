// Package member owns the table that says who is inside the SR domain of a cluster, beside
// the domain's prefixes in the settings. An uplink decapsulates packets of members only,
// and pods reach none of the SIDs.
//
// Put and Delete take the data path's lock.
package member

import (
	"fmt"
	"sync"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/target"
	"github.com/culvert-net/culvert/internal/overlay"
)

// Table is the table. What an earlier daemon had stays until the targets are swept.
type Table struct {
	mu      *sync.Mutex
	targets *target.Table
}

// New takes the targets. mu is the data path's lock.
func New(mu *sync.Mutex, targets *target.Table) *Table { return &Table{mu, targets} }

// Put adds a member. Of two with the same prefix the later stays.
func (t *Table) Put(m overlay.Member) error {
	if !m.Prefix.IsValid() || !m.Prefix.Addr().Is6() {
		return fmt.Errorf("%s: want an IPv6 prefix", m.Prefix)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.targets.PutFrom(abi.MemberTable, m.Prefix.Masked(), kind(m))
}

// Delete removes a member. One that is not there, or of the other kind, is not an error.
func (t *Table) Delete(m overlay.Member) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := m.Prefix.Masked(); t.targets.AtFrom(abi.MemberTable, p) == kind(m) {
		return t.targets.DeleteFrom(abi.MemberTable, p)
	}
	return nil
}

func kind(m overlay.Member) abi.Target {
	if m.SIDs {
		return abi.Target{Kind: uint32(abi.TargetKindTARGET_SID)}
	}
	return abi.Target{Kind: uint32(abi.TargetKindTARGET_MEMBER)}
}
