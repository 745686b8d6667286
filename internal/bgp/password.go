package bgp

import (
	"fmt"
	"os"
	"strings"
)

// ReadPassword reads the password of TCP MD5 from a file; of no file it is empty.
func ReadPassword(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	password := strings.TrimSpace(string(text))
	const longest = 80 // TCP_MD5SIG_MAXKEYLEN
	if password == "" || len(password) > longest {
		return "", fmt.Errorf("%s holds %d characters: want 1 to %d", path, len(password), longest)
	}
	return password, nil
}
