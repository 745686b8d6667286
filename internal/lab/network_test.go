package lab

import (
	"io"
	"os"
	"testing"
)

func TestNetworkErrors(t *testing.T) {
	for _, tt := range []struct {
		name, as, n9 string
		words        []string
	}{
		{"nowhere", "x", "", []string{"no lab", "nowhere"}},
		{"slices", "x", "mpls", []string{"mpls", "gtpu, traditional, enhanced"}},
		{"slices", "No", "gtpu", []string{"--as", "No"}},
	} {
		_, err := Open(t.Context(), tt.name, tt.as, os.Args[0], tt.n9, io.Discard)
		wantError(t, err, tt.words...)
	}
}
