package api_test

import (
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/srv6"
)

// A request with very many mistakes is refused by a short answer, and its memory goes back to the
// system: a daemon that once got such a request does not stay as large as that.
func TestLargeRequest(t *testing.T) {
	_, client, _ := start(t, "headend.yaml")
	held := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapSys - m.HeapReleased
	}
	before := held()
	const most = 1000
	func() {
		wanted := load(t, "headend.yaml")
		for range 200_000 {
			wanted.SIDs = append(wanted.SIDs, srv6.LocalSID{SID: netip.MustParsePrefix("2001:db8:1::/64"), Behavior: srv6.End})
		}
		_, err := client.Apply(t.Context(), wanted, true)
		list, ok := errors.AsType[config.Errors](err)
		if !ok || len(list) != most+1 || !strings.Contains(list[most].Error(), " more mistakes are not listed (fix: repair these first)") {
			t.Fatalf("%d errors, the last ones %v", len(list), list[max(0, len(list)-2):])
		}
	}()
	const margin = 64 << 20
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		now := held()
		if now < before+margin {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d MB are held, before the request %d", now>>20, before>>20)
		}
	}
}
