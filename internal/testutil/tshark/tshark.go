// Package tshark lets somebody else read what we send.
package tshark

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Frames writes Ethernet frames into a capture, a second apart, and returns its path.
func Frames(t testing.TB, frames [][]byte) string {
	t.Helper()
	return write(t, layers.LinkTypeEthernet, frames)
}

// Packets is Frames of what begins with IPv4 or IPv6.
func Packets(t testing.TB, packets [][]byte) string {
	t.Helper()
	return write(t, layers.LinkTypeRaw, packets)
}

func write(t testing.TB, link layers.LinkType, list [][]byte) string {
	t.Helper()
	var file bytes.Buffer
	w := pcapgo.NewWriter(&file)
	if err := w.WriteFileHeader(1<<16, link); err != nil {
		t.Fatal(err)
	}
	for i, b := range list {
		info := gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(b), Length: len(b)}
		if err := w.WritePacket(info, b); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "capture.pcap")
	if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Read has tshark read a capture, with every checksum of IPv4 and UDP verified and
// no names looked up, and returns what it prints.
func Read(t testing.TB, path string, args ...string) string {
	t.Helper()
	options := []string{"-r", path, "-n", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"}
	cmd := exec.Command("tshark", append(options, args...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("tshark (Debian package tshark): %v\n%s", err, problems.String())
	}
	return out.String()
}

// IsWarning says whether an expert severity (_ws.expert.severity) is a warning or
// worse.
func IsWarning(severity string) bool {
	const warn = 0x00600000
	n, err := strconv.Atoi(severity)
	return err == nil && n >= warn
}
