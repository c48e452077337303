#include "textflag.h"

// func vfork(nr, a0, a1, a2 uintptr) uintptr
//
// The child runs on the same stack while the parent waits, and overwrites what is
// below the caller's frame; the return address is in the link register, of which
// parent and child have one each.
TEXT ·vfork(SB),NOSPLIT|NOFRAME,$0-40
	MOVD	a0+8(FP), R0
	MOVD	a1+16(FP), R1
	MOVD	a2+24(FP), R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	ZR, R5
	MOVD	nr+0(FP), R8
	SVC
	MOVD	R0, ret+32(FP)
	RET
