package daemon

import (
	"crypto/sha256"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// CDRFile is where free5GC's CHF writes the charging data records of a subscriber.
func CDRFile(imsi string) string {
	return fmt.Sprintf("/tmp/chf-%x.cdr", sha256.Sum256([]byte("imsi-"+imsi)))
}

// Tags of a charging data record (TS 32.298 section 5.2.5.2): ChargingRecord,
// listOfMultipleUnitUsage, an element of it, usedUnitContainers, an element of it, and the
// volumes in that.
var (
	volumeUplink   = []int{200, 5, asn1.TagSequence, 1, asn1.TagSequence, 5}
	volumeDownlink = []int{200, 5, asn1.TagSequence, 1, asn1.TagSequence, 6}
)

var errCDR = errors.New("no charging data records")

// ChargedVolume is the sum of octets in the records of a file (TS 32.297 section 6.1).
func ChargedVolume(file string) (up, down uint64, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, err
	}
	const headerLength, recordHeader = 4, 4 // where the file's is, and of how many octets a record's
	if len(b) < headerLength+4 || int(binary.BigEndian.Uint32(b[headerLength:])) > len(b) {
		return 0, 0, errCDR
	}
	for b = b[binary.BigEndian.Uint32(b[headerLength:]):]; len(b) > 0; {
		if len(b) < recordHeader || len(b) < recordHeader+int(binary.BigEndian.Uint16(b)) {
			return 0, 0, errCDR
		}
		record := b[recordHeader:][:binary.BigEndian.Uint16(b)]
		b = b[recordHeader+len(record):]
		if err := errors.Join(sumOf(record, volumeUplink, &up), sumOf(record, volumeDownlink, &down)); err != nil {
			return 0, 0, err
		}
	}
	return up, down, nil
}

// sumOf adds the numbers to which a path of tags leads, in elements of BER.
func sumOf(ber []byte, path []int, sum *uint64) error {
	for len(ber) > 0 {
		var element asn1.RawValue
		rest, err := asn1.Unmarshal(ber, &element)
		if err != nil {
			return err
		}
		ber = rest
		switch {
		case element.Tag != path[0]:
		case len(path) > 1:
			if err := sumOf(element.Bytes, path[1:], sum); err != nil {
				return err
			}
		case len(element.Bytes) > 8:
			return errCDR
		default: // of volumes, none is negative
			var number [8]byte
			copy(number[8-len(element.Bytes):], element.Bytes)
			*sum += binary.BigEndian.Uint64(number[:])
		}
	}
	return nil
}
