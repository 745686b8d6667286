package upf

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/upf/rules"
)

// maxMatchesLogged bounds what is remembered of what SMFs say.
const maxMatchesLogged = 256

// matchLog logs how sessions found their slice, where operators could be surprised:
// each case once.
type matchLog struct {
	log  *slog.Logger
	mu   sync.Mutex
	seen map[matchKey]bool
}

// matchKey is a case. slice is "" where no slice takes the session.
type matchKey struct{ association, snssai, instances, slice string }

// note logs the match of a session, if it is the first of its kind.
func (l *matchLog) note(list []slice.Slice, s *session.Session, m rules.Match) {
	if m.Slice != nil && !m.Reversed && m.Other == nil || len(list) == 0 {
		return
	}
	key := matchKey{association: s.Node, snssai: s.SNSSAI.String(), instances: strings.Join(rules.Instances(s), " ")}
	if m.Slice != nil {
		key.instances, key.slice = "", m.Slice.Name
	}
	l.mu.Lock()
	known := l.seen[key] || len(l.seen) >= maxMatchesLogged
	if !known {
		l.seen[key] = true
	}
	l.mu.Unlock()
	switch {
	case known:
	case m.Reversed:
		l.log.Info("the SMF sends the octets of the SD in reverse order: the slice was found by that", "event", logevent.SliceReversedSD,
			"association", key.association, "received", key.snssai, "slice", key.slice, "snssai", m.Slice.SNSSAI)
	case m.Other != nil:
		l.log.Warn("the SDs of two slices have the same octets in opposite order: if the SMF reverses SDs, as Open5GS does, its sessions are in the wrong slice",
			"event", logevent.SliceAmbiguousSD, "association", key.association, "received", key.snssai, "slice", key.slice, "other", m.Other.Name,
			"fix", "compare with what the SMF is configured with; give each slice its network_instance, or one of them another SD")
	default:
		l.log.Warn("sessions belong to no slice", "event", logevent.SliceNone, "association", key.association, "received", key.snssai,
			"network_instances", key.instances, "slices", selections(list),
			"fix", "give a slice this snssai or network_instance, or leave both out for one that takes all sessions")
	}
}

// selections says what sessions slices take: of the first of them, in words.
func selections(list []slice.Slice) string {
	const most = 8
	var out []string
	for i := range list[:min(len(list), most)] {
		text := fmt.Sprintf("%s: snssai %s", list[i].Name, list[i].SNSSAI)
		if n := list[i].NetworkInstance; n != "" {
			text += ", network_instance " + n
		}
		out = append(out, text)
	}
	if more := len(list) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, "; ")
}
