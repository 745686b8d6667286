package cli

import (
	"testing"

	"github.com/culvert-net/culvert/internal/testutil/helptext"
)

// What stands for a value in the help is a noun, and every command has an example that it takes.
func TestHelpText(t *testing.T) {
	for _, wrong := range helptext.Placeholders(New("v1.2.3")) {
		t.Error(wrong)
	}
	for _, wrong := range helptext.Examples(New("v1.2.3")) {
		t.Error(wrong)
	}
}
