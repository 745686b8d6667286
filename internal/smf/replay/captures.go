package replay

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// builtIn are conversations of real cores with their UPFs: free5GC 4.2 with its own
// UPF, Open5GS 2.7 with its own, and Open5GS 2.7.7 with Culvert as of November 2026
// (with IPv6 sessions and their router solicitations). In sd-core are the messages that the
// code of SD-Core's SMF (July 2026) makes of sessions, PCC rules, a dedicated QoS flow, path
// switches and idle UEs, in the order of its procedures, as Culvert answered them.
//
//go:embed captures/*.pcap
var builtIn embed.FS

// Names are those of the captures that are built in.
func Names() (names []string) {
	list, err := builtIn.ReadDir("captures")
	if err != nil {
		panic(err) // the directory is in the program
	}
	for _, e := range list {
		names = append(names, strings.TrimSuffix(e.Name(), ".pcap"))
	}
	return names
}

// Open reads a capture: a file, or one that is built in, by its name.
func Open(name string) (*Capture, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && slices.Contains(Names(), name) {
		text, err = builtIn.ReadFile("captures/" + name + ".pcap")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: give a capture file (pcap or pcapng), or one of %s", err, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, err
	}
	c, err := Read(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}
