package capture

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// mostText is how many octets of text are read.
const mostText = 4 << 20

var (
	// dumped is a line of a dump: an offset, then groups of digits, and the same as text
	// behind two spaces.
	dumped = regexp.MustCompile(`^\s*(?:0x)?([0-9a-fA-F]{4,8})(?::\s+|\s{2,})((?:(?:[0-9a-fA-F]{2}){1,2} ?)+)(?:\s{2,}.*)?$`)
	// digits is a line that has nothing but digits, in groups or not.
	digits = regexp.MustCompile(`^\s*(?:0x)?[0-9a-fA-F]{2}(?:[\s:-]*[0-9a-fA-F]{2})*\s*$`)
	// between are what stands between groups.
	between = strings.NewReplacer(" ", "", "\t", "", ":", "", "-", "")
)

// Text returns the frames of a text, at most so many: a line of digits for each frame, or
// dumps whose lines begin with offsets. Other lines are titles and end a dump.
func Text(text string, most int) ([][]byte, error) {
	if len(text) > mostText {
		return nil, fmt.Errorf("the text is longer than %d octets", mostText)
	}
	var frames [][]byte
	inDump := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, "\r")
		offset, data := "", ""
		if m := dumped.FindStringSubmatch(line); m != nil {
			offset, data = m[1], m[2]
		} else if digits.MatchString(line) {
			data = strings.TrimPrefix(strings.TrimSpace(line), "0x")
		} else {
			inDump = false
			continue
		}
		octets, err := hex.DecodeString(between.Replace(data))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		begins := strings.Trim(offset, "0") == ""
		if !begins && !inDump {
			return nil, fmt.Errorf("line %d: the dump begins at offset %s: give the packet from its first octet on", i+1, offset)
		}
		if begins {
			if len(frames) == most {
				return nil, tooMany(most)
			}
			frames = append(frames, nil)
		}
		last := len(frames) - 1
		frames[last] = append(frames[last], octets...)
		inDump = offset != ""
	}
	if len(frames) == 0 {
		return nil, errors.New("no packet: give a pcap or pcapng file, or hexadecimal digits from the Ethernet header on")
	}
	return frames, nil
}
