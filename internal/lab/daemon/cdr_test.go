package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// element is one of BER, its tag in wire form.
func element(tag string, contents ...string) string {
	text := strings.Join(contents, "")
	if len(text) > 127 {
		return tag + "\x81" + string([]byte{byte(len(text))}) + text
	}
	return tag + string([]byte{byte(len(text))}) + text
}

// records is a file of charging data records.
func records(list ...string) []byte {
	file := "\x00\x00\x00\x00\x00\x00\x00\x0c\xff\xff\xff\xff" // a header of 12 octets, whose length counts
	for _, r := range list {
		file += string([]byte{0, byte(len(r)), 0x01, 0x20}) + r
	}
	return []byte(file)
}

func TestChargedVolume(t *testing.T) {
	used := func(up, down string) string {
		container := element("\x30", element("\x84", "\x7f"), element("\x85", up), element("\x86", down))
		return element("\x30", element("\x80", "\x01"), element("\xa1", container), element("\x82", "upf"))
	}
	first := element("\xbf\x81\x48", element("\x80", "\x00\xc8"), element("\xa5", used("\x01\x00", "\x05"), used("\x02", "\x00\xff")), element("\x87", "\x09"))
	second := element("\xbf\x81\x48", element("\xa5", used("\x03", "\x00")))
	whole := records(first, second)
	file := filepath.Join(t.TempDir(), "x.cdr")
	tests := []struct {
		name     string
		octets   []byte
		up, down uint64
		words    string // of an error
	}{
		{"two records", whole, 256 + 2 + 3, 5 + 255, ""},
		{"none", records(), 0, 0, ""},
		{"nothing used", records(element("\xbf\x81\x48", element("\x80", "\x00"))), 0, 0, ""},
		{"no header", whole[:7], 0, 0, "no charging data"},
		{"longer header", bytes.Replace(whole, []byte("\x0c\xff"), []byte("\xff\xff"), 1), 0, 0, "no charging data"},
		{"cut in a record", whole[:len(whole)-1], 0, 0, "no charging data"},
		{"cut before a record", append(whole, 0), 0, 0, "no charging data"},
		{"no BER", records("\x30\x05\x00"), 0, 0, "asn1"},
		{"no BER inside", records(element("\xbf\x81\x48", element("\xa5", "\x30\x05\x00"))), 0, 0, "asn1"},
		{"long number", records(element("\xbf\x81\x48", element("\xa5", used("123456789", "")))), 0, 0, "no charging data"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(file, tt.octets, 0o600); err != nil {
				t.Fatal(err)
			}
			up, down, err := ChargedVolume(file)
			if tt.words != "" {
				wantError(t, err, tt.words)
			} else if err != nil || up != tt.up || down != tt.down {
				t.Errorf("%d, %d, %v: want %d, %d", up, down, err, tt.up, tt.down)
			}
		})
	}
	if _, _, err := ChargedVolume(file + ".none"); !os.IsNotExist(err) {
		t.Errorf("a file that is missing: %v", err)
	}
}
