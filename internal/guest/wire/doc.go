// Package wire holds the frames that host and guest exchange.
//
// A frame is four bytes of length (big endian, of what follows), one byte of
// type, the call id as uvarint, and the fields of its message in order: uvarints
// and length-prefixed bytes. There is no reflection and no self-description: both
// sides know the version from the hello. Fields are only ever appended to a
// message, and a decoder ignores bytes behind the fields that it knows; a change
// of meaning raises guest.Protocol. Golden frames in testdata keep this true.
//
// A request that is longer than a frame goes as More frames, directly followed by
// the frame that names its type; Reader joins them up to its limit.
//
// Call ids are chosen by the host, from 1, unique within its life; 0 is for
// frames that want no reply. A guest answers each call once, in any order.
package wire
