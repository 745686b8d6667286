package session

// A SEID of ours is below 2^53, which every reader of JSON takes for what it is. Its
// lower bits are its place: sessions that exist at one time have one each, so tables
// find them without a search. Its upper bits are random. They are kept in the SEID and
// nowhere else: no key has to survive a restart.
const (
	placeBits  = 22
	secretBits = 31
)

// Places is how many places there are. More sessions than that share them, and are
// found more slowly.
const Places = 1 << placeBits

// MakeSEID makes a SEID of a place and random bits. Whoever knows SEIDs does not know
// others: of 2^31 guesses at one place, one is right. That protects against a sender who
// has an SMF's address but cannot read N4; it hides nothing from one who reads N4.
func MakeSEID(place, random uint32) uint64 {
	return uint64(random&(1<<secretBits-1))<<placeBits | uint64(place%Places)
}

// PlaceOf returns the place of a SEID.
func PlaceOf(seid uint64) uint32 { return uint32(seid % Places) }
