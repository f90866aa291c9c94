"""iq2_xxs, iq2_xs, iq2_s, iq3_xxs and iq3_s: an index into a codebook and signs for some columns.

A codebook has the magnitudes of 8 columns in an entry, each one of three, or those of 4 columns,
each one of eight. Columns share a scale: d times an odd integer, and a power of two.
"""

import base64
import zlib

import numpy as np
from numpy.typing import NDArray

from tensor_ops_decode.weights.formats.bits import Bytes, Integers, Values, f16, shifted

__all__ = ["CODEBOOKS", "iq2_s", "iq2_xs", "iq2_xxs", "iq3_s", "iq3_xxs"]

# The codebooks of GGML, whose entries ascend: the low bytes of all differences, then the high ones.
_PACKED = {
    "iq2_xxs": (
        "c-muNVrFJyXXasIV-jcP;oxMJVd9X8XXatmb`i;7Qb?$0<`D#nu}LU0^N7R%X*FeW!3uT*7ljyBpok<;r&*27A)&WG"
        "b@B=-JgnIq5(ZpqOB8o=NU*Ay&+wWj_L`Z;z_Ffn_Qv&099FXOOv~kWF#QLLiLG)})~S#v*{~O4F$W(P(2@cLM|sv7"
        "ehWUK85|M`l9fVt7=db8cSmq49`-Ka;N)OW;Ha@ndi$TL;(PEKK@RUbC;splXv_#b?6H8Ao2h8uJ|+%x$0iYtiyuI~"
        "P*~vRS8A@Xh>7<zkBCfSY1Yx*N=m#2^B?({wtSbc*up>nFcK-lid&iyiyD|1Bap!;ir)ezthO*Bl(52ufP5x#Yz|~("
        "WJIW9U}R=s1Dnjk003HUK5z"
    ),
    "iq2_xs": (
        "c-muNVrFJyXJ%q%2Qnm~G$*qRm}F&7go*%_K!kWWB$;^%AWTJO9#(Cxax_g$T#Cpl1mzo<dBmicoN6G(@UY4N4bf2G"
        "3TNgqaO5ag;K<`jL^FbiOB~q<0}-Zdps@xD3t&R5>>@HiV+{_7nC@WaVbT*Zs$xxi9T5(-0;ESF5lC>z&Q^-kh-BuG"
        "6hGi7=$;|j6UD(KW@;>TOrt^~iH!->?J(CN*~}^%4>Vs~`~WmOz^=(<<`I#JO5?KP*$7g?&o@udm`8H<A4C8dG=hSL"
        "X`f44I4A@Z6cyq*DmZ4kTgHp%@_RO_F*(<O4B}H!4p&k0$P@czz#1Q$x%;6X-#kPB7%-_Zg@gPp$gx}@fk}=7=np1l"
        "Z3WG8m&D?rX&kbqYD{WzGI1PyLO>Y<F})fkr%%S^toA${7t@*63xqB{<Gp~1jY*8FY$Jzn6cd|Ln8Je43&uraOl%b#"
        "F%3+Mn9?N~C<cs_t7E0W2u8x@Fyb^qltNE367&Tlb}l0;k_beQiJ*%Zv6_TtHCz!BHa9VXArb%pLe@(Q"
    ),
    "iq2_s": (
        "c-qZV&r1S96n1BLt~(4$hgR1XwI4<pffPhVbm$OBHzC$S*y<2PKkyPkbTQ~Zh;E*RZguMr_^0(|XJ?%??I8W~;EZqH"
        "``-6`@0lQ!5|a{Y;>8J13(stDasV$1y5W-vn8^v{v?-HVHi#|)u(Usbp}<{PXazMg2wFpl&5uGLai6BV6?KGcKNT{z"
        "C;C&XC=)ZS37Srl`Pyl}d0v%DT`b-@CRX;oq+kL^bWWG_&Lc?b0l`#Ju2#HIX;D4iMOn`JF|XRsx+>I>aT$|}cu}|-"
        ";IUki<oOyY>?`AjG_&(<?C5kQ=ZzAAJY46t=g3V+QK-$wrofdEmNu8TI$<q$p-+CKXP>RWRS3Nc%qTa}RsDTVf3?r?"
        "s}~>Cz)Zey+R3(uJ@?_;!k}LCo6QTedd|fxTFSyz`ozgOM_#)=XdqQqs9Zf>QogrxTFLo-kc`XXswL#X@@PbG7>);E"
        "ipz^4SsccZ-3TE)Il#J4H_Pv<WTE6sJg&<QQdk#@P7Ve<Y*_wIp(Es;c{OXRCH{yhoJ2kKRPLm3lNw2}NW5B`YC3Cg"
        "h1=KVdt#I1;Y{MYKgM5z!GDlpd@oC5oRrD`GEd_tXJ(9<1LIT~>X`fmk}w8l6g1$=B15nK07}YE2m"
    ),
    "iq3_xxs": (
        "c-ozgu}Z{15QZ;5%W_MMOIVhJkQ<k9U08yom*d)y!rn)UM+&VhRJ06om5m-Ty+x4g#rPb8iG|pR!GVF9;hS$}0(f8o"
        "(mzDemy)@VDlGf4gaivX6<k1NHw#aND0pn%lZwI8)j;<NB{q-}uR||aYml$a1<P6%#b<MR`huA2*Fdk9DHA1Ruhc?U"
        "lAW-IHj5xVg-RZWi&lGsLg4|Pw&pVWn8j-zrgdand#eZ`n^!Yo`1MhptA^~k3+j@j<R+<USsrf{%gW?nN1Xv}m-qQI"
        "-*57_mO4O0W*5Aq-km1fm>SXE<liwJ13BZc0UTqTezSjVIzNZbuMaz)6a+VL"
    ),
    "iq3_s": (
        "c-qyG&u-H|5QppEjNN$u%*tzrsv)-HURy*XaYIP(c(jmMZEpxv3AnYT;R=V`i&Vioa729t#^D7xAP{@l)sAMq`F3_I"
        "NeFq8048DaAQ*TAqURcO30q>rp=Q5G7&(z;%Q7U@)C*e#kT{GDAD3)Mgrq&e6zql3`csRhYnRwWYQESo0p!{N4Q#PU"
        "K!$xF323sTs4lFKXycM7C&_a5ot&ytji4r%o6Po>sm7;4v~r#FzmR|hD|tA_IpG*W>hHATnrH&QZ6Z(T1;`acsoZ;&"
        "?NT5&r=>5(d0F>JCy(4aH#VjJ7zUtjIujG62ZBn>A|FMGn63hQ?N)%L=_Pfc6Mh{~`WWlC`)k!LZ}cThHiX$pYP4Od"
        "*9-X6MZaU^%nuHHgS|4JpJDQB)g4@?_e)ucBDJoPm)blOPZve>S^Xi+cWPhBf~K+hQtjhzjplBc?1S^!_LHkUDZTWS"
        "Z@)L~8=4=yfBY3cn08T_O3p*s;xoC-hHiC8&6R%j;kViP;qBJnT%-R8JNj3I(Vxrx4b)FXPCq#"
    ),
}


def _entries(packed: str) -> NDArray[np.uint16]:
    differences = np.frombuffer(zlib.decompress(base64.b85decode(packed)), np.uint8)
    low, high = differences.astype(np.uint16).reshape(2, -1)
    return np.cumsum(low | high << 8, dtype=np.uint16)


#: The entries of each codebook, of 16 bits: codes of 2 bits for 8 columns, or of 4 bits for 4.
CODEBOOKS = {name: _entries(packed) for name, packed in _PACKED.items()}
_TWO_BITS = np.array([8, 25, 43], np.int8)
_XXS = np.array([4, 12, 20, 28, 36, 44, 52, 62], np.int8)
_S = np.arange(1, 16, 2, dtype=np.int8)


def _magnitudes(name: str, bits: int, of_codes: Integers) -> Integers:
    """Return the magnitudes of each entry of a codebook."""
    codes = CODEBOOKS[name][:, None] >> np.arange(0, 16, bits) & ((1 << bits) - 1)
    magnitudes: Integers = of_codes[codes]
    return magnitudes


_IQ2_XXS = _magnitudes("iq2_xxs", 2, _TWO_BITS)
_IQ2_XS = _magnitudes("iq2_xs", 2, _TWO_BITS)
_IQ2_S = _magnitudes("iq2_s", 2, _TWO_BITS)
_IQ3_XXS = _magnitudes("iq3_xxs", 4, _XXS)
_IQ3_S = _magnitudes("iq3_s", 4, _S)
# Bit 7 of signs that are stored in 7 bits makes the number of minus signs even.
_SIGNS = np.arange(128, dtype=np.uint8)
_SIGNS |= (np.unpackbits(_SIGNS[:, None], axis=1).sum(axis=1, dtype=np.uint8) & 1) << 7


def iq2_xxs(blocks: Bytes) -> Values:
    """Return values of iq2_xxs: 4 indices for 32 columns, then their signs and their scale."""
    of_columns = blocks[:, 2:].reshape(-1, 8, 8)
    signs, integers = _signs_and_integers(of_columns[:, :, 4:].reshape(-1, 32))
    magnitudes = _IQ2_XXS[of_columns[:, :, :4].reshape(-1, 32)]
    return _values(_scales(blocks, integers, 0.125), magnitudes, signs)


def iq2_xs(blocks: Bytes) -> Values:
    """Return values of iq2_xs: an index of 9 bits and 7 signs for each 8 columns."""
    pairs = blocks[:, 2:66].view("<u2")
    scales = _scales(blocks, _of_four_bits(blocks[:, 66:]), 0.125)
    return _values(scales, _IQ2_XS[pairs & 511], _SIGNS[pairs >> 9])


def iq2_s(blocks: Bytes) -> Values:
    """Return values of iq2_s: an index of 10 bits and 8 signs for each 8 columns."""
    high = shifted(blocks[:, 66:74].reshape(-1, 1), 2).reshape(-1, 32).astype(np.uint16)
    scales = _scales(blocks, _of_four_bits(blocks[:, 74:]), 0.125)
    return _values(scales, _IQ2_S[blocks[:, 2:34] | high << 8], blocks[:, 34:66])


def iq3_xxs(blocks: Bytes) -> Values:
    """Return values of iq3_xxs: 8 indices for 32 columns, and apart their signs and their scale."""
    signs, integers = _signs_and_integers(blocks[:, 66:])
    return _values(_scales(blocks, integers, 0.25), _IQ3_XXS[blocks[:, 2:66]], signs)


def iq3_s(blocks: Bytes) -> Values:
    """Return values of iq3_s: an index of 9 bits for each 4 columns, and 8 signs for 8."""
    high = np.unpackbits(blocks[:, 66:74], axis=1, bitorder="little").astype(np.uint16)
    scales = _scales(blocks, _of_four_bits(blocks[:, 106:]), 1)
    return _values(scales, _IQ3_S[blocks[:, 2:66] | high << 8], blocks[:, 74:106])


def _of_four_bits(packed: Bytes) -> Bytes:
    """Return integers of 4 bits, the low half of a byte before the high one."""
    return shifted(packed.reshape(-1, 1), 4).reshape(len(packed), -1)


def _signs_and_integers(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Return the signs and the integer of each 32 columns, which have 28 and 4 bits of 32."""
    words = np.ascontiguousarray(packed).view("<u4")[:, :, None]
    signs = _SIGNS[words >> np.arange(0, 28, 7, dtype=np.uint32) & 127]
    return signs.reshape(len(packed), -1), (words[:, :, 0] >> 28).astype(np.uint8)


def _scales(blocks: Bytes, integers: Bytes, factor: float) -> Values:
    return f16(blocks[:, :2]) * (2 * integers + 1) * np.float32(factor)


def _values(scales: Values, magnitudes: Integers, signs: Bytes) -> Values:
    """Return values of their magnitudes, with a bit of each for the sign."""
    minus = np.unpackbits(signs, axis=1, bitorder="little").astype(bool)
    numbers = magnitudes.reshape(len(scales), -1)
    numbers = np.where(minus, -numbers, numbers).reshape(*scales.shape, -1)
    return (scales[:, :, None] * numbers).reshape(-1, 256)
