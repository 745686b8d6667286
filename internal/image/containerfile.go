package image

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Read is the image that a Containerfile makes of the files in folder. It knows
// what an image of static programs needs: FROM scratch, COPY into a folder, ENV
// of one name, and ENTRYPOINT as a list. Everything else is an error.
func Read(containerfile, folder string) (Image, error) {
	text, err := os.ReadFile(containerfile)
	if err != nil {
		return Image{}, err
	}
	i := Image{}
	for n, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		instruction, rest, _ := strings.Cut(line, " ")
		if err := i.instruct(instruction, strings.TrimSpace(rest), folder); err != nil {
			return Image{}, fmt.Errorf("%s:%d: %w", containerfile, n+1, err)
		}
	}
	return i, nil
}

func (i *Image) instruct(instruction, rest, folder string) error {
	switch instruction {
	case "FROM":
		if rest == "scratch" {
			return nil
		}
	case "COPY":
		names := strings.Fields(rest)
		if len(names) < 2 || !strings.HasSuffix(names[len(names)-1], "/") || strings.HasPrefix(names[0], "-") {
			return fmt.Errorf("want COPY file... folder/, not %s", rest)
		}
		for _, from := range names[:len(names)-1] {
			i.Files = append(i.Files, File{Path: path.Join(names[len(names)-1], path.Base(from)), From: filepath.Join(folder, from)})
		}
		return nil
	case "ENV":
		if name, value, ok := strings.Cut(rest, "="); ok && !strings.ContainsAny(name+value, " \"'$") {
			i.Env = append(i.Env, rest)
			return nil
		}
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(rest), &i.Entrypoint)
	}
	return fmt.Errorf("%s %s: only an engine for containers can do that", instruction, rest)
}
