package pin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/cilium/ebpf/link"
)

// LinkName names the pin of a link: kind is xdp with a mode (native, generic), tcx with a
// hook (pod, entry, uplink), or netfilter, which has the version of IP in place of an
// interface.
type LinkName struct {
	Kind    string
	Ifindex int
	How     string
}

// hows are what each kind of link can have.
var hows = map[string]string{"xdp native": "", "xdp generic": "", "tcx pod": "", "tcx entry": "", "tcx uplink": "",
	"netfilter forward": "", "netfilter forwardnext": ""}

func (n LinkName) String() string { return fmt.Sprintf("%s_%d_%s", n.Kind, n.Ifindex, n.How) }

func parseLinkName(name string) (n LinkName, ok bool) {
	_, err := fmt.Sscanf(strings.ReplaceAll(name, "_", " "), "%s %d %s", &n.Kind, &n.Ifindex, &n.How)
	_, known := hows[n.Kind+" "+n.How]
	return n, err == nil && known && n.String() == name
}

// Alive says whether a link's interface is still there.
func Alive(l link.Link) bool {
	info, err := l.Info()
	if err != nil {
		return false
	}
	if info.TCX() != nil {
		return info.TCX().Ifindex != 0
	}
	return info.Netfilter() != nil || info.XDP() != nil && info.XDP().Ifindex != 0
}

// PutLink pins a link. A nil Dir pins nothing.
func (p *Dir) PutLink(n LinkName, l link.Link) error {
	if p == nil {
		return nil
	}
	return l.Pin(p.at(dirLinks, n.String()))
}

// RemoveLink removes a link's pin, if there is one.
func (p *Dir) RemoveLink(n LinkName) error {
	if p == nil {
		return nil
	}
	if err := os.Remove(p.at(dirLinks, n.String())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Links opens the pinned links of a kind. Those of interfaces that are gone are
// removed.
func (p *Dir) Links(kind string) (map[LinkName]link.Link, error) {
	entries, err := os.ReadDir(p.at(dirLinks))
	if err != nil {
		return nil, fmt.Errorf("read pins: %w", err)
	}
	out := map[LinkName]link.Link{}
	for _, e := range entries {
		n, ok := parseLinkName(e.Name())
		if !ok || n.Kind != kind {
			continue
		}
		path := p.at(dirLinks, e.Name())
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return out, fmt.Errorf("open pinned link %s: %w", n, err)
		}
		if Alive(l) {
			out[n] = l
		} else if err := errors.Join(os.Remove(path), l.Close()); err != nil {
			return out, fmt.Errorf("remove the link of an interface that is gone: %w", err)
		}
	}
	return out, nil
}
